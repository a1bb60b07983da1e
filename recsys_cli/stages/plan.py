"""`recsys train --plan`: expected time of a training run, and its memory compared with the free memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch

from recsys_cli.batch import Batch
from recsys_cli.config import ModelConfig, Placement, RunConfig, TrainConfig, vary
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Column
from recsys_cli.loader import Loader
from recsys_cli.loader.footprint import footprint, tables_footprint
from recsys_cli.models import build, kind_of
from recsys_cli.models.embedding import key_of
from recsys_cli.models.model import Model
from recsys_cli.registry import AUTO
from recsys_cli.stages.auto import candidates_of
from recsys_cli.stages.etl import prepared_data
from recsys_cli.stages.trainer import new_model, trainer_of
from recsys_cli.training import hardware
from recsys_cli.training.distributed.ranks import Ranks
from recsys_cli.training.memory.estimate import (
    DataMemory,
    Hardware,
    Kind,
    MemoryItem,
    ModelMemory,
    TableMemory,
    memory_items,
    model_memory,
    total,
)
from recsys_cli.training.memory.probe import MemoryProbe, probe_step
from recsys_cli.training.pace import measure_pace
from recsys_cli.workspace import PreparedData, Workspace

_SAMPLE = 65_536
"""Highest number of rows of the memory probe, scaled for larger steps."""
_BUDGET = 512
"""Suggested memory budget of the loader in MiB."""
_WORTH = 0.9
"""A setting is suggested if it reduces the missing memory to at most this share."""
_THRESHOLDS = (2, 3, 5, 10, 15, 20, 30, 50, 100, 200, 500, 1_000)


def plan(config: RunConfig, workspace: Workspace) -> dict[str, Any]:
    """Estimate time and memory of training a config; see `plan_on`. For `auto` those of its `candidates`, None of closed forms.

    Raises:
        MissingArtifactError: The data is not prepared.
        ConfigError: The model does not fit the data, or the device does not exist.
        DataError: A file does not match schema.json.
    """
    data = prepared_data(config, workspace)
    if config.model.name != AUTO:
        return plan_on(data, config)
    candidates = candidates_of(config, data).configs
    plans = {
        label: None if kind_of(own.model.name).rows == "all" else plan_on(data, own)
        for label, own in candidates.items()
    }
    return {"model": AUTO, "candidates": plans}


def plan_on(data: PreparedData, config: RunConfig, *, free: Mapping[Kind, int] | None = None) -> dict[str, Any]:
    """Estimate time and memory of training on prepared data; free bytes of this machine by default.

    Returns:
        JSON values: `tables`, each with rows, width and bytes; `needs`, the memory items; `places`, each with needed
        and free memory; `ways`, settings that reduce the memory, each in addition to those before it. These are empty for
        models trained on user histories or on the whole interaction matrix. `pace` has the fields of
        `training.pace.Pace`, `epoch_seconds` and the peak memory of the measurement; None for several processes, or
        without enough memory.
    """
    data.verify()
    kind = kind_of(config.model.name)
    if kind.rows == "all":
        raise ConfigError(
            f"{config.model.name} is fitted at once, without training steps",
            hint="`recsys validate` estimates its time and memory",
        )
    model = _on_meta(data, config.model, sparse=not kind.dense_gradients)
    reads_rows = model.rows != "users" and not model.dense_gradients
    memory = (
        _memory_plan(data, model, config, free) if reads_rows else {"tables": [], "needs": [], "places": [], "ways": []}
    )
    device = hardware.device(config.train.device)
    measurable = config.train.devices == 1 and all(place["fits"] for place in memory["places"])
    return {
        "model": config.model.name,
        "device": device.type,
        "precision": hardware.precision(config.train.precision, device, bf16_on_cpu=model.bf16_on_cpu),
        "processes": config.train.devices,
        **memory,
        "pace": _pace(data, config) if measurable else None,
    }


def _memory_plan(
    data: PreparedData, built: Model, config: RunConfig, free: Mapping[Kind, int] | None
) -> dict[str, Any]:
    planner = _Planner(data, built, config, free)
    model, items = planner.model_memory(config.train), planner.items(config.train, config.model.embedding.placement)
    return {
        "tables": [{**asdict(table), "name": planner.column(table)} for table in model.tables],
        "needs": [asdict(item) for item in items],
        "places": [
            {"place": place, "needed": total(items, place), "there": size, "fits": total(items, place) <= size}
            for place, size in planner.free.items()
        ],
        "ways": list(_suggestions(planner, config)),
        "tried_rows": planner.probed_rows,
    }


def _pace(data: PreparedData, config: RunConfig) -> dict[str, Any]:
    model = new_model(data, config.model, config.train)
    pace = measure_pace(trainer_of(model, config.model.name, data, config.train, ranks=Ranks()))
    return {**asdict(pace), "epoch_seconds": pace.epoch_seconds, "peak_memory": hardware.peak_memory()}


def _on_meta(data: PreparedData, config: ModelConfig, *, sparse: bool) -> Model:
    with torch.device("meta"):
        return build(config.name, config.options, data.schema, sparse=sparse)


class _Planner:
    """Memory of a run with varied settings, from a single memory probe."""

    def __init__(self, data: PreparedData, model: Model, config: RunConfig, free: Mapping[Kind, int] | None) -> None:
        self.data, train = data, config.train
        self.device = hardware.device(train.device)
        self.free = dict(free or hardware.free_memory(self.device))
        splits = {split: footprint(data, split) for split in ("train", "valid") if data.rows(split)}
        self.largest = max(split.largest for split in splits.values())
        num_bytes = {name: split.num_bytes for name, split in splits.items()}
        self.data_memory = DataMemory(num_bytes["train"], num_bytes.get("valid", 0), tables_footprint(data))
        assert train.batch_size != "auto"  # `auto` is for users
        batch_size = train.batch_size
        self.rows_of_step = min(batch_size, splits["train"].num_rows) // train.devices or 1
        self._model, self._probe = self._probe_step(model, config)
        self.probed_rows = self._probe.rows

    def model_memory(self, train: TrainConfig) -> ModelMemory:
        return model_memory(self._model, train, self._probe_of_part(train))

    def items(self, train: TrainConfig, placement: Placement) -> list[MemoryItem]:
        target = Hardware(self.device.type == "cuda", placement, train.devices, self.free.get("device", 0))
        return memory_items(self.model_memory(train), self._probe_of_part(train), self.data_memory, train, target)

    def missing(self, train: TrainConfig, placement: Placement) -> int:
        items = self.items(train, placement)
        return sum(max(0, total(items, place) - size) for place, size in self.free.items())

    def column(self, table: TableMemory) -> str:
        """Return the column of a table, or the table's path without a column."""
        last = table.name.rpartition(".")[2]
        return next((c.name for c in self.data.schema.categorical if key_of(c.name) == last), table.name)

    def _probe_of_part(self, train: TrainConfig) -> MemoryProbe:
        return self._probe.scaled(-(-self.rows_of_step // train.gradient_accumulation_steps))

    def _probe_step(self, model: Model, config: RunConfig) -> tuple[Model, MemoryProbe]:
        """Probe a step, with sparse gradients if the model supports them; the model is built with these."""
        train = config.train
        precision = hardware.precision(train.precision, self.device, bf16_on_cpu=model.bf16_on_cpu)
        batch = next(self._batch(train, times=model.timestamp is not None).parts(train.gradient_accumulation_steps))
        for sparse in (True, False):
            options = train.model_copy(update={"sparse_embeddings": sparse, "precision": precision})
            try:
                return model, probe_step(deepcopy(model), options, batch, self.data.schema)
            except ConfigError:
                if train.sparse_embeddings or not sparse:
                    raise
                model = _on_meta(self.data, config.model, sparse=False)
        raise AssertionError

    def _batch(self, options: TrainConfig, *, times: bool) -> Batch:
        """Read a batch of training rows, with the least memory, and with `times`."""
        memory = max(64, -(-3 * self.largest // 2**20))
        rows = min(self.rows_of_step, _SAMPLE)
        loader = Loader(
            self.data, "train", batch_size=rows, shuffle=True, seed=options.seed, memory=memory, times=times
        )
        batches = iter(loader)
        try:
            return next(batches)
        finally:
            batches.close()  # type: ignore[attr-defined]


def _suggestions(planner: _Planner, config: RunConfig) -> Iterator[dict[str, Any]]:
    """Yield settings that reduce the memory until the run fits, first those that keep the result."""

    def missing_with(overrides: list[str]) -> int:
        changed = vary(config, overrides) if overrides else config
        return planner.missing(changed.train, changed.model.embedding.placement)

    chosen: list[str] = []
    missing = missing_with(chosen)
    for overrides in _overrides(planner, config.train):
        if not missing:
            return
        try:
            left = missing_with([*chosen, *overrides])
        except ConfigError:  # an invalid combination
            continue
        if left < _WORTH * missing:
            chosen += overrides
            yield {"set": " ".join(overrides), "short": left, "fits": left == 0}
            missing = left
    if missing:
        changed = vary(config, chosen)
        yield from _fewer_rows(planner, changed.train, changed.model.embedding.placement, missing)


def _overrides(planner: _Planner, options: TrainConfig) -> Iterator[list[str]]:
    if options.memory_mib > _BUDGET:
        yield [f"train.memory_mib={max(_BUDGET, -(-3 * planner.largest // 2**20))}"]
    yield [f"train.gradient_accumulation_steps={options.gradient_accumulation_steps * 4}"]
    yield [f"train.gradient_accumulation_steps={options.gradient_accumulation_steps * 16}"]
    yield [
        "train.sparse_embeddings=true",
        *(["train.embedding_weight_decay=0"] if options.embedding_weight_decay else []),
    ]
    if planner.device.type == "cuda":
        yield ["model.embedding.placement=host"]
    if options.devices > 1:
        yield ["model.embedding.placement=sharded"]
    yield ["train.embedding_optimizer=adagrad"]


def _fewer_rows(planner: _Planner, train: TrainConfig, placement: Placement, missing: int) -> Iterator[dict[str, Any]]:
    """Yield the lowest frequency threshold with small enough tables."""
    columns = {column.name: column for column in planner.data.schema.categorical}
    tables = planner.model_memory(train).tables
    by_column = [(columns[name], table) for table in tables if (name := planner.column(table)) in columns]
    counts = {column.name: _counts(planner.data, column) for column, _ in by_column}
    copies = 1 if placement == "sharded" else train.devices
    for threshold in _THRESHOLDS:
        saved = 0
        for column, table in by_column:
            dropped = int((counts[column.name] < threshold).sum())
            whole = table.weights + table.state + (0 if train.sparse_embeddings else table.gradient)
            saved += dropped * whole // table.rows
        if saved * copies >= missing:
            yield {"set": f"freq_threshold: {threshold} in Categorify of features.ops", "short": 0, "fits": True}
            return
    text = "num_buckets in Categorify of features.ops, or a smaller model.embedding_dim"
    yield {"set": text, "short": missing, "fits": False}


def _counts(data: PreparedData, column: Column) -> np.ndarray[Any, Any]:
    path = data.vocabulary(column.vocabulary or column.name)
    if not path.is_file():
        return np.empty(0, np.int64)
    return np.asarray(pq.read_table(path, columns=["count"])["count"].to_numpy())
