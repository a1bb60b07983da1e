"""Quantized embedding tables of an export: their size, and the quality lost on the held-out split."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recsys_cli.config import RunConfig
from recsys_cli.errors import ConfigError
from recsys_cli.evaluation.loaded_run import model_of
from recsys_cli.evaluation.measure import ComputeSettings, measure
from recsys_cli.evaluation.result import MODEL
from recsys_cli.events import Emit, ignore
from recsys_cli.models.embedding import Embeddings, TableType, quantize_tables
from recsys_cli.models.model import Model
from recsys_cli.workspace import PreparedData, TrainedRun


def measure_tables(
    run: TrainedRun, config: RunConfig, data: PreparedData, kind: TableType, *, emit: Emit = ignore
) -> dict[str, Any]:
    """Evaluate a run with its tables and with quantized ones, on the same rows and users.

    Returns:
        For the manifest: `type`, `bytes` and `fp32_bytes` of all tables, the `split`, and by metric the values `fp32` and
        `quantized`.

    Raises:
        ConfigError: The model has no embedding tables, or there is no held-out split.
    """
    model = model_of(run, config, data)
    full = table_bytes(model)
    if not full:
        raise ConfigError(
            f"{config.model.name} has no embedding tables to store as {kind}", hint="export without --tables"
        )
    compute = ComputeSettings(memory=config.train.memory_mib, emit=emit)
    metrics: dict[str, dict[str, float]] = {}
    split = ""
    for label in ("fp32", "quantized"):
        if label == "quantized":
            quantize_tables(model, kind)
        measured, _ = measure(model, data, config.evaluate, compute=compute)
        split = measured.split
        for name, value in (*_values(measured.pointwise), *_values(measured.ranking)):
            metrics.setdefault(name, {})[label] = value
    return {"type": kind, "bytes": table_bytes(model), "fp32_bytes": full, "split": split, "metrics": metrics}


def table_bytes(model: Model) -> int:
    """Return the bytes of all embedding tables, scales included."""
    tables = [table for module in model.modules() if isinstance(module, Embeddings) for table in module.tables.values()]
    return sum(tensor.nbytes for table in tables for tensor in table.state_dict().values())


def _values(by_system: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, float]]:
    """Return the model's metrics with a value."""
    return [(name, one.value) for name, one in by_system.get(MODEL, {}).items() if one.value is not None]
