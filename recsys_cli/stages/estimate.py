"""Time and memory of a config, from timed runs on its first rows on this machine."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from recsys_cli.config import RunConfig, TrainConfig
from recsys_cli.errors import DataError
from recsys_cli.events import Emit, Event
from recsys_cli.features.schema import Schema
from recsys_cli.workspace import PreparedData, Workspace

_SIZES = (4_000, 16_000)
_MOST_SECONDS = 60
"""Seconds of all timed runs; thousands of columns, or a slow model, take minutes for a few rows."""
_LOW, _HIGH = 0.7, 1.5
"""Range of an extrapolated time: the machine's noise, and rates of other rows than the first."""
_COPIES_OF_ROWS = 3
"""Copies of the raw rows in memory during the preparation, within its budget."""
_TRAINED, _FITTED = 4, 3.5
"""Bytes in training per byte of the model: weights, gradient and two moments; for closed forms the working matrices."""


@dataclass(frozen=True)
class Estimate:
    """Expected time and memory; seconds as (low, high), memory as peaks of the process in bytes.

    Attributes:
        rows: Number of rows of the timed runs.
    """

    rows: int
    etl_seconds: tuple[float, float]
    train_seconds: tuple[float, float]
    etl_memory: int
    train_memory: int


@dataclass(frozen=True)
class _Prepared:
    rows: int
    seconds: float
    data: PreparedData


def estimate(config: RunConfig, raw: Path, *, rows: int, row_bytes: float) -> Estimate:
    """Prepare and train on the first rows, and extrapolate to all.

    Args:
        config: The config.
        raw: Folder of the raw tables.
        rows: Number of interactions.
        row_bytes: Bytes of an interaction in memory.

    Raises:
        RecsysError: The first rows are not enough to train on, or take too long.
    """
    from recsys_cli.etl.prepare import peak_memory

    train, config, emit = config.train, _on_one_process(config), _ending_after(_MOST_SECONDS)
    with TemporaryDirectory(prefix="recsys-") as folder:
        workspace = Workspace(folder)
        sizes = [min(rows, size) for size in (_SIZES[0] // 4, *_SIZES)]  # the first run loads packages
        _, first, last = (_prepare(config, raw, workspace, size, number, emit) for number, size in enumerate(sizes))
        more = max(0, rows - last.rows)
        etl_memory = peak_memory() + min(config.etl.memory_mib << 20, round(_COPIES_OF_ROWS * row_bytes * more))
        train_seconds = _training(config, train, workspace, first, last, rows, emit)
        grown = _model_bytes(config, _grown(first, last, rows)) - _model_bytes(config, last.data.schema)
        train_memory = peak_memory() + max(0, grown) + _rows_bytes(config, last, rows)
    return Estimate(last.rows, _preparation(first, last, more), train_seconds, etl_memory, train_memory)


def _ending_after(seconds: float) -> Emit:
    """Return a receiver of events that raises an error for the first one after some seconds."""
    end = time.monotonic() + seconds

    def emit(event: Event) -> None:  # noqa: ARG001
        if time.monotonic() > end:
            raise DataError(f"timed runs on the first rows take more than {seconds:g} s")

    return emit


def _on_one_process(config: RunConfig) -> RunConfig:
    train = {
        "epochs": min(config.train.epochs, 2),
        "early_stopping": None,
        "devices": 1,
        "trackers": (),
        "continue_from": None,
    }
    update = {"train": config.train.model_copy(update=train), "etl": config.etl.model_copy(update={"cluster": None})}
    return config.model_copy(update={**update, "tune": None, "bench": None})


def _prepare(config: RunConfig, raw: Path, workspace: Workspace, rows: int, number: int, emit: Emit) -> _Prepared:
    from recsys_cli.etl.prepare import Preparation

    started = time.perf_counter()
    key = f"{number:016x}"
    data = workspace.data(key)
    manifest: dict[str, Any] = {"key": key, "dataset": config.dataset.name}
    with workspace.scratch() as scratch, workspace.create(data, manifest) as folder:
        manifest |= Preparation(config, raw, scratch, folder, emit, limit=rows).run()
    return _Prepared(rows, time.perf_counter() - started, data)


def _preparation(first: _Prepared, last: _Prepared, more: int) -> tuple[float, float]:
    """Return the seconds of the preparation, with the rate between the two runs."""
    mean = last.seconds / last.rows
    rate = mean if last.rows == first.rows else (last.seconds - first.seconds) / (last.rows - first.rows)
    rate = min(mean, max(rate, mean / 5))
    return _LOW * (last.seconds + more * rate), _HIGH * (last.seconds + more * rate)


def _training(
    config: RunConfig, train: TrainConfig, workspace: Workspace, first: _Prepared, last: _Prepared, rows: int,
    emit: Emit,
) -> tuple[float, float]:  # fmt: skip
    from recsys_cli.models import kind_of
    from recsys_cli.stages.train import train_on

    def seconds(prepared: _Prepared) -> list[float]:
        run = train_on(prepared.data, config, workspace, emit=emit).artifact
        return [float(epoch["seconds"]) for epoch in run.manifest["history"]]

    if kind_of(config.model.name).rows == "all":
        early, late = (max(1e-3, seconds(one)[0]) for one in (first, last))
        power = math.log(late / early) / math.log(last.rows / first.rows) if last.rows > first.rows else 1.0
        low, high = (bound(1.0, min(power, 2.5)) for bound in (min, max))
        return _LOW * late * (rows / last.rows) ** max(0.0, low), _HIGH * late * (rows / last.rows) ** high
    epoch = min(seconds(first)) * rows / first.rows
    least, most = train.num_epochs(has_valid=last.data.rows("valid") > 0)
    return _LOW * epoch * least, _HIGH * epoch * most


def _model_bytes(config: RunConfig, schema: Schema) -> int:
    """Return the bytes of a model in training; 0 if only its training knows its size, such as of trees."""
    import torch

    from recsys_cli.models import build, kind_of

    with torch.device("meta"), suppress(RuntimeError):
        model = build(config.model.name, config.model.options, schema, sparse=config.train.sparse_embeddings)
        size = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
        return round(size * (_FITTED if kind_of(config.model.name).rows == "all" else _TRAINED))
    return 0


def _grown(first: _Prepared, last: _Prepared, rows: int) -> Schema:
    """Return the schema of all rows, with the growth of the vocabularies between the two runs (Heaps' law)."""
    columns = []
    for early, late in zip(first.data.schema.columns, last.data.schema.columns, strict=True):
        if late.cardinality is not None and early.cardinality is not None and rows > last.rows > first.rows:
            power = math.log(late.cardinality / early.cardinality) / math.log(last.rows / first.rows)
            size = round(late.cardinality * (rows / last.rows) ** min(1.0, max(0.0, power)))
            columns.append(late.model_copy(update={"cardinality": size}))
        else:
            columns.append(late)
    return Schema(columns=tuple(columns))


def _rows_bytes(config: RunConfig, last: _Prepared, rows: int) -> int:
    from recsys_cli.loader.footprint import footprint

    size = footprint(last.data, "train").num_bytes * max(0, rows - last.rows) / last.rows
    return min(config.train.memory_mib << 20, round(size))
