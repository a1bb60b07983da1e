"""Warm start: weights and optimizer state of an earlier run. Rows of tables are matched by value, as ids may differ."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from torch import Tensor

from recsys_cli.config import RunConfig, TrainConfig
from recsys_cli.errors import ConfigError
from recsys_cli.evaluation.loaded_run import config_of
from recsys_cli.events import Emit, Message
from recsys_cli.features.schema import FIRST, UNSEEN, Column
from recsys_cli.models.collaborative.features import CollaborativeColumns
from recsys_cli.models.embedding import Embeddings, key_of
from recsys_cli.models.embedding.tables import INITIAL_STD
from recsys_cli.models.model import Model
from recsys_cli.models.weights import read_weights
from recsys_cli.ops.plan import FeaturePlan
from recsys_cli.training.checkpoint import OPTIMIZER, Checkpoint
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace

_OPTIMIZERS = ("sparse_embeddings", "embedding_optimizer")
"""Options of optimizers with a state of their own."""


@dataclass(frozen=True)
class Start:
    """Finished run, with its `best` checkpoint, and prepared data."""

    run: TrainedRun
    data: PreparedData


def warm_start(
    model: Model, config: RunConfig, data: PreparedData, workspace: Workspace, *, emit: Emit
) -> dict[str, Tensor]:
    """Copy the weights of the run `train.continue_from`, if any, into a new model, and return its state; see `carry_over`."""
    start = start_of(config.train.continue_from, workspace)
    return {} if start is None else carry_over(model, config, start, data, emit=emit)


def start_of(previous: str | None, workspace: Workspace) -> Start | None:
    """Return the run of `train.continue_from`; None without one.

    Raises:
        ConfigError: The name is incomplete. It is part of the run's key, and an incomplete one may become ambiguous.
        MissingArtifactError: The run does not exist or is not finished, or its data is gone.
    """
    if previous is None:
        return None
    run = workspace.run(previous)
    if run.folder.name != previous:
        raise ConfigError(
            f"train.continue_from={previous} must be the full name of a run",
            hint=f"train.continue_from={run.folder.name}",
        )
    return Start(run, workspace.data_of(run))


def carry_over(model: Model, config: RunConfig, start: Start, data: PreparedData, *, emit: Emit) -> dict[str, Tensor]:
    """Copy the weights of a previous run into a new model, and return its optimizers' state as of a checkpoint.

    Rows of tables are matched by value: values in both vocabularies keep their rows, as do padding, null, unseen, and
    an equal number of hash buckets. New values start near the row of unseen values. All other weights are copied.
    Collaborative features are not copied but fitted to the new train rows. New rows have an empty state; the whole state is
    empty if the `last` checkpoint is gone or of other optimizers.

    Raises:
        ConfigError: Model or data do not match; the message lists all differences.
        MissingArtifactError: The checkpoint is gone.
        DataError: The checkpoint is damaged.
    """
    start.run.verify(start.run.checkpoint("best"))
    fitted = tuple(f"{path}." for path, module in model.named_modules() if isinstance(module, CollaborativeColumns))
    weights = {
        **{
            key: tensor
            for key, tensor in read_weights(start.run.checkpoint("best")).items()
            if not key.startswith(fitted)
        },
        **{key: tensor for key, tensor in model.state_dict().items() if key.startswith(fitted)},
    }
    tables = tables_of(model)
    problems = _problems(start, config.model.name, data) or _misfits(model, weights, tables)
    if problems:
        text = "\n  ".join([f"this config cannot continue {start.run.folder.name}:", *problems])
        raise ConfigError(text, hint=f"use the model options and features of {start.run.config}")
    counts, rows = [], {}
    for key, (owner, column) in tables.items():
        old, new = _same_rows(start.data.schema[column], data.schema[column], start.data, data)
        total = data.schema[column].cardinality or 0
        added = torch.from_numpy(np.setdiff1d(np.arange(total), new.numpy()))
        drawn = torch.normal(weights[key][[UNSEEN]].expand(len(added), -1), INITIAL_STD)
        owner.write_rows(column, torch.cat([new, added]), torch.cat([weights[key][old], drawn]))
        rows[f"{OPTIMIZER}{key}"] = old, new, total
        counts.append(f"{column} keeps {old.numel():,} rows and gets {total - old.numel():,} new ones")
    rest = {key: tensor for key, tensor in weights.items() if key not in tables}
    model.load_state_dict(rest, strict=False)  # `_misfits` has checked the names
    state = _state(start, config.train, rows)
    counts.append("the optimizers' state goes on" if state else "optimizers start anew")
    emit(Message(f"continuing {start.run.folder.name}: {'; '.join(counts)}"))
    return state


def _state(start: Start, train: TrainConfig, rows: dict[str, tuple[Tensor, Tensor, int]]) -> dict[str, Tensor]:
    """Return the state of a run's optimizers, in new rows of tables, by old and new rows and the number of all."""
    path, before = start.run.checkpoint("last"), config_of(start.run).train
    start.run.fetch(path)
    if not path.is_file() or any(getattr(train, name) != getattr(before, name) for name in _OPTIMIZERS):
        return {}
    state = {key: tensor for key, tensor in Checkpoint.load(path).whole().items() if key.startswith(OPTIMIZER)}
    for key in (key for key, tensor in state.items() if tensor.ndim and key.rpartition(":")[0] in rows):
        old, new, total = rows[key.rpartition(":")[0]]
        grown = state[key].new_zeros(total, *state[key].shape[1:])
        state[key] = grown.index_copy_(0, new, state[key][old])
    return state


def tables_of(model: Model) -> dict[str, tuple[Embeddings, str]]:
    """Return the tables of columns by the name of their weights."""
    return {
        f"{path}.tables.{key_of(name)}.weight".lstrip("."): (module, name)
        for path, module in model.named_modules()
        if isinstance(module, Embeddings)
        for name in module.names
    }


def _problems(start: Start, model: str, data: PreparedData) -> list[str]:
    old_name = config_of(start.run).model.name
    problems = [f"model.name is {model} and was {old_name}"] if old_name != model else []
    old, new = ({column.name: column for column in one.schema.features} for one in (start.data, data))
    problems += [f"the column {name} is new" for name in new if name not in old]
    problems += [f"the column {name} is missing now" for name in old if name not in new]
    plans = _plan_of(start.data), _plan_of(data)
    for name in (name for name in new if name in old):
        if (new[name].kind, new[name].ragged) != (old[name].kind, old[name].ragged):
            problems.append(f"the column {name} is {_type_name(new[name])} and was {_type_name(old[name])}")
        elif not _has_same_ids(old[name], new[name], plans):
            problems.append(f"the ids of {name} come from other ops, without a vocabulary to match them")
    return problems


def _has_same_ids(old: Column, new: Column, plans: tuple[FeaturePlan, FeaturePlan]) -> bool:
    """Return whether the ids of a column have the same meaning, or a vocabulary to match them."""
    if new.cardinality is None or (new.vocabulary and old.vocabulary):
        return True
    old_ops, new_ops = (_ops_of(plan, new.name) for plan in plans)
    return new.cardinality == old.cardinality and new_ops == old_ops


def _type_name(column: Column) -> str:
    return f"{'a list of ' if column.ragged else ''}{'ids' if column.cardinality else 'numbers'}"


def _plan_of(data: PreparedData) -> FeaturePlan:
    return FeaturePlan.model_validate_json((data.folder / "plan.json").read_text(encoding="utf-8"))


def _ops_of(plan: FeaturePlan, column: str) -> list[object]:
    """Return the ops of a column; equal ops give equal ids for equal values."""
    ops = [op for op in plan.ops if column in getattr(op, "columns", ()) or column == getattr(op, "output", None)]
    return [op.model_dump(mode="json", exclude={"columns"} if op.columnwise else None) for op in ops]


def _misfits(model: Model, weights: dict[str, Tensor], tables: dict[str, tuple[Embeddings, str]]) -> list[str]:
    """Return differences in weights and widths of tables."""
    new = {key: tuple(tensor.shape) for key, tensor in model.state_dict().items() if key not in tables}
    old = {key: tuple(tensor.shape) for key, tensor in weights.items() if key not in tables}
    widths = {key: weights[key].shape[1] if key in weights else None for key in tables}
    problems = [
        f"the embedding of {name} is {owner.dims[name]} wide and was {widths[key] or 'missing'}"
        for key, (owner, name) in tables.items()
        if owner.dims[name] != widths[key]
    ]
    differ = [key for key in {**new, **old} if new.get(key) != old.get(key)]
    return problems + [f"{key} is {_shape(new.get(key))} and was {_shape(old.get(key))}" for key in differ]


def _shape(shape: tuple[int, ...] | None) -> str:
    if shape is None:
        return "missing"
    return " × ".join(map(str, shape)) if shape else "a scalar"


def _same_rows(old: Column, new: Column, old_data: PreparedData, new_data: PreparedData) -> tuple[Tensor, Tensor]:
    """Return matching rows of a column's old and new table."""
    if old.vocabulary is None or new.vocabulary is None:
        every = torch.arange(new.cardinality or 0)
        return every, every
    old_values = pq.read_table(old_data.vocabulary(old.vocabulary), columns=["value"])["value"]
    values = pq.read_table(new_data.vocabulary(new.vocabulary), columns=["value"])["value"]
    try:
        indices = pc.index_in(old_values.cast(values.type), value_set=values)
    except pa.ArrowInvalid as error:
        raise ConfigError(f"the values of {new.name} were {old_values.type} and are {values.type}: {error}") from error
    ids = torch.from_numpy(pc.fill_null(indices, -1).to_numpy().astype("int64"))
    kept = torch.nonzero(ids >= 0).flatten()
    reserved = torch.arange(FIRST)
    buckets = torch.arange(new.buckets if new.buckets == old.buckets else 0)
    first_old, first_new = old.own_ids.stop, new.own_ids.stop
    return torch.cat([reserved, kept + FIRST, buckets + first_old]), torch.cat(
        [reserved, ids[kept] + FIRST, buckets + first_new]
    )
