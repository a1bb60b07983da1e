"""Finished runs: config, splits, training context, and the model with the best weights."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import torch

from recsys_cli import plugins
from recsys_cli.batch import Batch
from recsys_cli.config import Placement, RunConfig, load
from recsys_cli.features.split import SPLITS
from recsys_cli.interactions import Interactions
from recsys_cli.loader import DimensionTables, Loader
from recsys_cli.loader.interactions import read_observed
from recsys_cli.models import build
from recsys_cli.models.embedding import TableType, quantize_tables
from recsys_cli.models.model import Model, TrainingContext
from recsys_cli.models.weights import load_weights
from recsys_cli.workspace import PreparedData, TrainedRun, finished

_BATCH_ROWS = 65_536
"""Batch size of whole rows; affects only speed and memory."""


def make_context(
    data: PreparedData,
    *splits: str,
    device: torch.device | str = "cpu",
    tables: DimensionTables | None = None,
    memory: int = 4_096,
    read: Interactions | None = None,
) -> TrainingContext:
    """Return the training context of some splits, without sampled negatives; rows are read on demand.

    `read` are loaded interactions of these splits, `tables` loaded dimension tables on the device; `memory` is in
    MiB.
    """

    @cache
    def interactions() -> Interactions:
        return read_observed(data, *splits) if read is None else read

    def batches() -> Iterator[Batch]:
        for split in splits:
            if data.rows(split):
                yield from Loader(data, split, batch_size=_BATCH_ROWS, device=device, memory=memory)

    tables = tables or DimensionTables(data, device=device)
    return TrainingContext(interactions, tables.join, batches)


def config_of(run: TrainedRun) -> RunConfig:
    """Return the verified config of a run."""
    finished(run).verify_config()
    return _read(run.config, run.config.stat().st_mtime_ns, os.environ.get(plugins.VARIABLE))


@cache
def _read(config: Path, modified: int, trusted: str | None) -> RunConfig:  # noqa: ARG001 - a later file or trust is read
    return load(config)


def model_of(run: TrainedRun, config: RunConfig, data: PreparedData) -> Model:
    """Return the model of a run with its best weights, in evaluation mode on the CPU.

    Raises:
        MissingArtifactError: The checkpoint is missing.
        DataError: The checkpoint is damaged, or of another model.
    """
    run.verify(run.checkpoint("best"))
    model = build(config.model.name, config.model.options, data.schema, placement=placement_of(config))
    load_weights(model, run.checkpoint("best"))
    return model.eval()


def placement_of(config: RunConfig) -> Placement:
    """Return the placement of the tables of a trained model: whole tables may exceed a device if they were sharded."""
    return "device" if config.model.embedding.placement == "device" else "host"


def model_in_context(
    run: TrainedRun, config: RunConfig, data: PreparedData, *, tables: TableType = "fp32", newest: bool = False
) -> Model:
    """Return `model_of`, with tables of a type, and with the interactions of an evaluation, read on demand, as its context."""
    model = model_of(run, config, data)
    if tables != "fp32":
        quantize_tables(model, tables)
    model.set_context(make_context(data, *earlier_splits(config, data, newest=newest)))
    return model


def held_out_split(config: RunConfig, data: PreparedData) -> str | None:
    """Return the split of an evaluation, or None."""
    choice = config.evaluate.split
    return next((split for split in ("test", "valid") if data.rows(split) and choice in {split, "auto"}), None)


def earlier_splits(config: RunConfig, data: PreparedData, *, newest: bool = False) -> tuple[str, ...]:
    """Return the splits before the held-out split of an evaluation; with `newest` all splits."""
    if newest:
        return tuple(split for split in SPLITS if data.rows(split))
    return ("train", "valid") if held_out_split(config, data) == "test" and data.rows("valid") else ("train",)
