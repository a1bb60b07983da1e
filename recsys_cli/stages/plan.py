"""`recsys train --plan`: memory of a training run before its start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch

from recsys_cli.config import RunConfig
from recsys_cli.errors import ConfigError
from recsys_cli.loader.records import footprint, tables_footprint
from recsys_cli.models import build, kind_of
from recsys_cli.models.embedding import key_of
from recsys_cli.models.model import Model
from recsys_cli.registry import AUTO
from recsys_cli.stages.auto import candidates_of
from recsys_cli.stages.etl import prepared_data
from recsys_cli.training import hardware
from recsys_cli.training.memory import Kind, TableMemory, memory_of, total
from recsys_cli.workspace import PreparedData, Workspace


def plan(config: RunConfig, workspace: Workspace) -> dict[str, Any]:
    """Estimate the memory of training a config; see `plan_on`. For `auto` those of its `candidates`, None of closed forms.

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
    """Estimate the memory of training on prepared data, without activations; free bytes of this machine by default.

    Returns:
        JSON values: `tables`, each with rows, width and bytes; `needs`, the memory items; `places`, each with needed
        and free memory. These are empty for models trained on user histories or on the whole interaction matrix.
    """
    data.verify()
    kind = kind_of(config.model.name)
    if kind.rows == "all":
        raise ConfigError(
            f"{config.model.name} is fitted at once, without training steps",
            hint=f"recsys ls models {config.model.name} lists its options; some bound its memory",
        )
    sparse = config.train.sparse_embeddings and not kind.dense_gradients
    with torch.device("meta"):
        model = build(config.model.name, config.model.options, data.schema, sparse=sparse)
    reads_rows = model.rows != "users" and not model.dense_gradients
    memory = _memory_plan(data, model, config, free) if reads_rows else {"tables": [], "needs": [], "places": []}
    device = hardware.device(config.train.device)
    return {
        "model": config.model.name,
        "device": device.type,
        "precision": hardware.precision(config.train.precision, device, bf16_on_cpu=model.bf16_on_cpu),
        "processes": config.train.devices,
        **memory,
    }


def _memory_plan(
    data: PreparedData, model: Model, config: RunConfig, free: Mapping[Kind, int] | None
) -> dict[str, Any]:
    train, device = config.train, hardware.device(config.train.device)
    free = dict(free or hardware.free_memory(device))
    rows = {split: footprint(data, split) if data.rows(split) else 0 for split in ("train", "valid")}
    tables, items = memory_of(
        model, train, {**rows, "dimension tables": tables_footprint(data)}, free=free.get("device", 0),
        placement=config.model.embedding.placement, on_gpu=device.type == "cuda",
    )  # fmt: skip
    return {
        "tables": [{**asdict(table), "name": _column(data, table)} for table in tables],
        "needs": [asdict(item) for item in items],
        "places": [
            {"place": place, "needed": total(items, place), "there": size, "fits": total(items, place) <= size}
            for place, size in free.items()
        ],
    }


def _column(data: PreparedData, table: TableMemory) -> str:
    """Return the column of a table, or the table's path without a column."""
    last = table.name.rpartition(".")[2]
    return next((c.name for c in data.schema.categorical if key_of(c.name) == last), table.name)
