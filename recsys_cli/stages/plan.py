"""`recsys train --plan` and `--profile`: memory of a training run, and a trace of its first steps."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch

from recsys_cli.batch import Batch
from recsys_cli.config import ModelConfig, RunConfig, TrainConfig
from recsys_cli.errors import ConfigError
from recsys_cli.events import Emit, Progress, ignore
from recsys_cli.loader import Loader
from recsys_cli.loader.records import footprint, tables_footprint
from recsys_cli.models import build, kind_of
from recsys_cli.models.embedding import key_of
from recsys_cli.models.model import Model
from recsys_cli.registry import AUTO
from recsys_cli.stages.auto import candidates_of
from recsys_cli.stages.etl import prepared_data
from recsys_cli.stages.trainer import new_model, trainer_of
from recsys_cli.stages.warm_start import warm_start
from recsys_cli.training import hardware
from recsys_cli.training.data import TrainingData
from recsys_cli.training.memory import (
    DataMemory,
    Hardware,
    Kind,
    MemoryProbe,
    TableMemory,
    memory_items,
    model_memory,
    probe_step,
    total,
)
from recsys_cli.training.progress import Stepped
from recsys_cli.training.ranks import Ranks
from recsys_cli.workspace import PreparedData, Workspace

if TYPE_CHECKING:
    from torch.autograd.profiler_util import FunctionEventAvg

_SAMPLE = 65_536
"""Highest number of rows of the memory probe, scaled for larger steps."""
WARM_UP, STEPS = 10, 20
"""Warm-up steps, for memory allocation and kernel compilation, and profiled steps."""
_TOP = 15
"""Number of operations in a profile."""


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
    """Estimate the memory of training on prepared data; free bytes of this machine by default.

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
    model = _on_meta(data, config.model, sparse=not kind.dense_gradients)
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
    data: PreparedData, built: Model, config: RunConfig, free: Mapping[Kind, int] | None
) -> dict[str, Any]:
    train, device = config.train, hardware.device(config.train.device)
    free = dict(free or hardware.free_memory(device))
    splits = {split: footprint(data, split) for split in ("train", "valid") if data.rows(split)}
    num_bytes = {name: split.num_bytes for name, split in splits.items()}
    assert train.batch_size != "auto"  # `auto` is for users
    rows = min(train.batch_size, splits["train"].num_rows) // train.devices or 1
    model, probe = _probe(data, built, config, rows, largest=max(split.largest for split in splits.values()))
    part = probe.scaled(-(-rows // train.gradient_accumulation_steps))
    memory = model_memory(model, train, part)
    data_memory = DataMemory(num_bytes["train"], num_bytes.get("valid", 0), tables_footprint(data))
    target = Hardware(device.type == "cuda", config.model.embedding.placement, train.devices, free.get("device", 0))
    items = memory_items(memory, part, data_memory, train, target)
    return {
        "tables": [{**asdict(table), "name": _column(data, table)} for table in memory.tables],
        "needs": [asdict(item) for item in items],
        "places": [
            {"place": place, "needed": total(items, place), "there": size, "fits": total(items, place) <= size}
            for place, size in free.items()
        ],
        "tried_rows": probe.rows,
    }


def _on_meta(data: PreparedData, config: ModelConfig, *, sparse: bool) -> Model:
    with torch.device("meta"):
        return build(config.name, config.options, data.schema, sparse=sparse)


def _column(data: PreparedData, table: TableMemory) -> str:
    """Return the column of a table, or the table's path without a column."""
    last = table.name.rpartition(".")[2]
    return next((c.name for c in data.schema.categorical if key_of(c.name) == last), table.name)


def _probe(
    data: PreparedData, model: Model, config: RunConfig, rows: int, *, largest: int
) -> tuple[Model, MemoryProbe]:
    """Probe a step, with sparse gradients if the model supports them; the model is built with these."""
    train = config.train
    precision = hardware.precision(train.precision, hardware.device(train.device), bf16_on_cpu=model.bf16_on_cpu)
    batch = next(
        _batch(data, train, rows, largest, times=model.timestamp is not None).parts(train.gradient_accumulation_steps)
    )
    for sparse in (True, False):
        options = train.model_copy(update={"sparse_embeddings": sparse, "precision": precision})
        try:
            return model, probe_step(deepcopy(model), options, batch, data.schema)
        except ConfigError:
            if train.sparse_embeddings or not sparse:
                raise
            model = _on_meta(data, config.model, sparse=False)
    raise AssertionError


def _batch(data: PreparedData, train: TrainConfig, rows: int, largest: int, *, times: bool) -> Batch:
    """Read a batch of training rows, with the least memory, and with `times`."""
    memory, rows = max(64, -(-3 * largest // 2**20)), min(rows, _SAMPLE)
    loader = Loader(data, "train", batch_size=rows, shuffle=True, seed=train.seed, memory=memory, times=times)
    batches = iter(loader)
    try:
        return next(batches)
    finally:
        batches.close()  # type: ignore[attr-defined]


def profile(config: RunConfig, workspace: Workspace, *, emit: Emit = ignore) -> dict[str, Any]:
    """Profile the training steps of a config; see `profile_on`.

    Raises:
        MissingArtifactError: The data is not prepared.
        ConfigError: The model does not fit the data, or the device does not exist.
        DataError: A file does not match schema.json.
        TrainingError: The loss is not finite.
    """
    return profile_on(prepared_data(config, workspace), config, workspace, emit=emit)


def profile_on(data: PreparedData, config: RunConfig, workspace: Workspace, *, emit: Emit = ignore) -> dict[str, Any]:
    """Profile some training steps on prepared data, in this process whatever the value of `train.devices`.

    Returns:
        JSON values: rows, seconds and the slowest operations of a step, device, precision, peak_memory, and trace, a
        path in WORKSPACE/profiles.
    """
    data.verify()
    # One epoch may have too few steps; the learning rates are those of the first steps in any case.
    options = config.train.model_copy(update={"epochs": WARM_UP + STEPS, "early_stopping": None, "devices": 1})
    name = config.model.name
    model = new_model(data, config.model, options)
    warm_start(model, name, data, options.continue_from, workspace, emit=emit)
    trainer = trainer_of(model, name, data, options, ranks=Ranks(), emit=emit)
    trainer.data = TrainingData(trainer.data.train)  # without validation
    trace = workspace.new_trace(workspace.new_run(name, data.key).folder.name)
    steps = (event for event in trainer.events() if isinstance(event, Stepped))
    for step in islice(steps, WARM_UP):
        emit(Progress("profile", step.step, WARM_UP + STEPS, "steps"))
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # silences torch's profiler on stderr
    start = hardware.now(trainer.device)
    with torch.profiler.profile() as profiler:
        for step in islice(steps, STEPS):
            emit(Progress("profile", step.step, WARM_UP + STEPS, "steps"))
        seconds = (hardware.now(trainer.device) - start) / STEPS
    steps.close()
    profiler.export_chrome_trace(str(trace))
    return {
        "steps": STEPS,
        "rows": trainer.data.train.step_rows(0),
        "seconds": seconds,
        "operations": _operations(profiler.key_averages(), on_gpu=trainer.device.type == "cuda"),
        "device": trainer.device.type,
        "precision": trainer.step.precision,
        "peak_memory": hardware.peak_memory(),
        "trace": str(trace),
    }


def _operations(averages: Iterable[FunctionEventAvg], *, on_gpu: bool) -> list[dict[str, Any]]:
    """Return the slowest operations of a step by their own time, without that of the operations they call."""
    operations: list[dict[str, Any]] = [
        {
            "name": str(event.key),
            "calls": event.count / STEPS,
            "seconds": float(event.self_device_time_total if on_gpu else event.self_cpu_time_total) / 1e6 / STEPS,
        }
        for event in averages
    ]
    return sorted(operations, key=lambda operation: -operation["seconds"])[:_TOP]
