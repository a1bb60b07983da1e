"""`recsys train --plan`: what training would need, against what is there, without training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch

from recsys_cli.batch import Batch
from recsys_cli.config import RunConfig, TrainConfig, vary
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Column
from recsys_cli.loader import Loader
from recsys_cli.loader.footprint import footprint, tables_footprint
from recsys_cli.models import build, require_gradient_trained
from recsys_cli.models.embedding import key_of
from recsys_cli.models.model import Model
from recsys_cli.stages.etl import prepared_data
from recsys_cli.training import hardware
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
from recsys_cli.workspace import PreparedData, Workspace

_SAMPLE = 65_536
"""Most rows that a step is tried with; what more rows take is reckoned from it."""
_BUDGET = 512
"""MiB that the loader is told to do with, where memory is short."""
_WORTH = 0.9
"""A setting is told of if it leaves at most this share of what is missing."""
_THRESHOLDS = (2, 3, 5, 10, 15, 20, 30, 50, 100, 200, 500, 1_000)


def plan(config: RunConfig, workspace: Workspace) -> dict[str, Any]:
    """Say what training a config would need; see `plan_on`.

    Raises:
        MissingArtifactError: The data is not prepared.
        ConfigError: The model does not fit the data, or the device is not there.
        DataError: The prepared files are not what schema.json says.
    """
    return plan_on(prepared_data(config, workspace), config)


def plan_on(data: PreparedData, config: RunConfig, *, there: Mapping[Kind, int] | None = None) -> dict[str, Any]:
    """Say what training on given data would need, as plain values.

    Args:
        data: What `recsys etl` wrote.
        config: The experiment.
        there: Bytes of memory by place, `host` and `device`; None is what this machine has free.

    Returns:
        `tables`, each with rows, width and bytes; `needs`, by place; `places`, each with what is needed, what is there and
        whether it fits; `ways`, where it does not fit: settings that help, each on top of those before it.
    """
    data.verify()
    planner = _Planner(data, config, there)
    sizes, found = planner.sizes(config), planner.needs(config)
    return {
        "model": config.model.name,
        "device": planner.device.type,
        "precision": planner.precision,
        "processes": config.train.devices,
        "tables": [{**asdict(table), "name": planner.column(table)} for table in sizes.tables],
        "needs": [asdict(need) for need in found],
        "places": [
            {"place": place, "needed": total(found, place), "there": size, "fits": total(found, place) <= size}
            for place, size in planner.there.items()
        ],
        "ways": list(_ways(planner, config)),
        "tried_rows": planner.tried_rows,
    }


class _Planner:
    """Measures once; then other settings are tried at no cost.

    Args:
        data: What to train on.
        config: The experiment.
        there: Bytes of memory by place.
    """

    def __init__(self, data: PreparedData, config: RunConfig, there: Mapping[Kind, int] | None) -> None:
        self.data, self.config = data, config
        self.device = hardware.device(config.train.device)
        self.precision = hardware.precision(config.train.precision, self.device)
        self.there = dict(there or hardware.free_memory(self.device))
        splits = {split: footprint(data, split) for split in ("train", "valid") if data.rows(split)}
        self.largest = max(split.largest for split in splits.values())
        held = {name: split.num_bytes for name, split in splits.items()}
        self.rows = DataMemory(held["train"], held.get("valid", 0), tables_footprint(data))
        wanted = (
            1 if config.train.batch_size == "auto" else config.train.batch_size
        )  # of users, which are refused below
        self.rows_of_step = min(wanted, splits["train"].num_rows) // config.train.devices or 1
        self._model, self._probe = self._probe_step(config.train)
        self.tried_rows = self._probe.rows

    def sizes(self, config: RunConfig) -> ModelMemory:
        """Return what the model takes with other settings."""
        return model_memory(self._model, config.train, self._part(config))

    def needs(self, config: RunConfig) -> list[MemoryItem]:
        """Return everything that takes memory with other settings."""
        where = Hardware(
            on_gpu=self.device.type == "cuda",
            placement=config.model.embedding.placement,
            processes=config.train.devices,
            free=self.there.get("device", 0),
        )
        return memory_items(self.sizes(config), self._part(config), self.rows, config.train, where)

    def short(self, config: RunConfig) -> int:
        """Return how many bytes are missing with other settings."""
        found = self.needs(config)
        return sum(max(0, total(found, place) - size) for place, size in self.there.items())

    def column(self, table: TableMemory) -> str:
        """Return the column that a table is of, or the table's path where it is of none."""
        last = table.name.rpartition(".")[2]
        return next((c.name for c in self.data.schema.categorical if key_of(c.name) == last), table.name)

    def _part(self, config: RunConfig) -> MemoryProbe:
        return self._probe.scaled(-(-self.rows_of_step // config.train.gradient_accumulation_steps))

    def _probe_step(self, options: TrainConfig) -> tuple[Model, MemoryProbe]:
        """Try a step; with sparse gradients where the model has them, so that they are known."""
        model = self._on_meta(sparse=options.sparse_embeddings)
        if model.rows == "users" or model.dense_gradients:
            what = (
                "learns from whole histories of users" if model.rows == "users" else "looks at everything in every step"
            )
            raise ConfigError(
                f"{self.config.model.name} {what}, and a plan is of rows of the data alone",
                hint="recsys train train.epochs=1, and look at peak_memory in the run's manifest.json",
            )
        batch = next(self._batch(options).parts(options.gradient_accumulation_steps))
        for sparse in (True, False):
            known = options.model_copy(update={"sparse_embeddings": sparse, "precision": self.precision})
            try:
                return self._on_meta(sparse=sparse), probe_step(
                    self._on_meta(sparse=sparse), known, batch, self.data.schema
                )
            except ConfigError:
                if options.sparse_embeddings or not sparse:
                    raise
        raise AssertionError

    def _on_meta(self, *, sparse: bool) -> Model:
        with torch.device("meta"):
            name, options = self.config.model.name, self.config.model.options
            return require_gradient_trained(build(name, options, self.data.schema, sparse=sparse))

    def _batch(self, options: TrainConfig) -> Batch:
        """Read rows as training would, and no more of them than that takes."""
        memory = max(64, -(-3 * self.largest // 2**20))
        rows = min(self.rows_of_step, _SAMPLE)
        loader = Loader(self.data, "train", batch_size=rows, shuffle=True, seed=options.seed, memory=memory)
        batches = iter(loader)
        try:
            return next(batches)
        finally:
            batches.close()  # type: ignore[attr-defined]


def _ways(planner: _Planner, config: RunConfig) -> Iterator[dict[str, Any]]:
    """Find settings with which it fits: those that change nothing of the result first, each kept where it helps."""
    chosen: list[str] = []
    short = planner.short(config)
    for overrides in _overrides(planner, config):
        if not short:
            return
        try:
            left = planner.short(vary(config, [*chosen, *overrides]))
        except ConfigError:  # settings that do not go with the others
            continue
        if left < _WORTH * short:
            chosen += overrides
            yield {"set": " ".join(overrides), "short": left, "fits": left == 0}
            short = left
    if short:
        yield from _fewer_rows(planner, vary(config, chosen), short)


def _overrides(planner: _Planner, config: RunConfig) -> Iterator[list[str]]:
    options = config.train
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


def _fewer_rows(planner: _Planner, config: RunConfig, short: int) -> Iterator[dict[str, Any]]:
    """Find how often a value has to come so that the tables of those that do are small enough."""
    sizes = planner.sizes(config)
    columns = {column.name: column for column in planner.data.schema.categorical}
    by_column = [(columns[name], table) for table in sizes.tables if (name := planner.column(table)) in columns]
    counts = {column.name: _counts(planner.data, column) for column, _ in by_column}
    copies = 1 if config.model.embedding.placement == "sharded" else config.train.devices
    for threshold in _THRESHOLDS:
        saved = 0
        for column, table in by_column:
            dropped = int((counts[column.name] < threshold).sum())
            whole = table.weights + table.state + (0 if config.train.sparse_embeddings else table.gradient)
            saved += dropped * whole // table.rows
        if saved * copies >= short:
            yield {"set": f"freq_threshold: {threshold} in features.ops, where Categorify is", "short": 0, "fits": True}
            return
    yield {
        "set": "num_buckets in features.ops, where Categorify is, or a smaller model.embedding_dim",
        "short": short,
        "fits": False,
    }


def _counts(data: PreparedData, column: Column) -> np.ndarray[Any, Any]:
    path = data.vocabulary(column.vocabulary or column.name)
    if not path.is_file():
        return np.empty(0, np.int64)
    return np.asarray(pq.read_table(path, columns=["count"])["count"].to_numpy())
