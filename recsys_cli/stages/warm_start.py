"""Warm start from the weights of a previous run, on data with other ids: rows of embedding tables are matched by value."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from torch import Tensor

from recsys_cli.config import load
from recsys_cli.errors import ConfigError
from recsys_cli.events import Emit, Message
from recsys_cli.features.plan import FeaturePlan
from recsys_cli.features.schema import FIRST, Column
from recsys_cli.models.embedding import Embeddings, key_of
from recsys_cli.models.model import Model
from recsys_cli.models.weights import read_weights
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace


@dataclass(frozen=True)
class Start:
    """A previous run as the start of a new one.

    Attributes:
        run: Finished; its `best` checkpoint has the weights.
        data: Its training data.
    """

    run: TrainedRun
    data: PreparedData


def warm_start(
    model: Model, name: str, data: PreparedData, previous: str | None, workspace: Workspace, *, emit: Emit
) -> None:
    """Give a new model the weights of a previous run, if a run is named; see `carry_over`.

    Args:
        model: New, for `data`.
        name: As in `model.name`.
        data: Of the new run.
        previous: As in `train.continue_from`.
        workspace: Where runs are.
        emit: Receives the number of carried rows.
    """
    start = start_of(previous, workspace)
    if start is not None:
        carry_over(model, name, start, data, emit=emit)


def start_of(previous: str | None, workspace: Workspace) -> Start | None:
    """Return the run of `train.continue_from`; None without one.

    Raises:
        ConfigError: It is part of a name: a run's key depends on it, and a part may become ambiguous.
        MissingArtifactError: There is no such run, it is not finished, or its data is gone.
    """
    if previous is None:
        return None
    run = workspace.run(previous)
    if run.folder.name != previous:
        raise ConfigError(
            f"train.continue_from is {previous}, and has to be the whole name of a run",
            hint=f"train.continue_from={run.folder.name}",
        )
    return Start(run, workspace.data_of(run))


def carry_over(model: Model, name: str, start: Start, data: PreparedData, *, emit: Emit) -> None:
    """Copy the weights of a previous run into a new model.

    Rows of tables are matched by value: a value in both vocabularies keeps its row, as do padding, nulls and unseen values,
    and hash buckets if their number is the same. New values keep their random rows. All other weights are copied. Optimizers
    start anew.

    Args:
        model: New, for `data`.
        name: As in `model.name`.
        start: The previous run.
        data: Of the new run.
        emit: Receives the number of carried rows.

    Raises:
        ConfigError: The two do not fit; the message names everything that differs.
        MissingArtifactError: The checkpoint is gone.
        DataError: It is not a checkpoint.
    """
    weights = read_weights(start.run.checkpoint("best"))
    tables = _tables(model)
    problems = _problems(start, name, data) or _misfits(model, weights, tables)
    if problems:
        what = "\n  ".join([f"{start.run.folder.name} cannot be continued by this config:", *problems])
        raise ConfigError(what, hint=f"model options and features have to be those of {start.run.config}")
    counts = []
    for key, (owner, column) in tables.items():
        old, new = _same_rows(start.data.schema[column], data.schema[column], start.data, data)
        owner.write_rows(column, new, weights[key][old])
        total = data.schema[column].cardinality or 0
        counts.append(f"{column} keeps {old.numel():,} rows and gets {total - old.numel():,} new ones")
    rest = {key: tensor for key, tensor in weights.items() if key not in tables}
    model.load_state_dict(rest, strict=False)  # `_misfits` has looked at the names
    emit(Message(f"continuing {start.run.folder.name}: {'; '.join(counts) or 'the model has no tables'}"))


def _tables(model: Model) -> dict[str, tuple[Embeddings, str]]:
    """Return the tables that belong to columns, by the name of their weights."""
    return {
        f"{path}.tables.{key_of(name)}.weight".lstrip("."): (module, name)
        for path, module in model.named_modules()
        if isinstance(module, Embeddings)
        for name in module.names
    }


def _problems(start: Start, model: str, data: PreparedData) -> list[str]:
    """Say what the model would read differently from how the run before did."""
    before = load(start.run.config).model.name
    problems = [f"model.name is {model} and was {before}"] if before != model else []
    old, new = ({column.name: column for column in one.schema.features} for one in (start.data, data))
    problems += [f"the column {name} is new" for name in new if name not in old]
    problems += [f"the column {name} is not there any more" for name in old if name not in new]
    plans = _plan_of(data), _plan_of(start.data)
    for name in (name for name in new if name in old):
        here, there = new[name], old[name]
        if (here.kind, here.ragged) != (there.kind, there.ragged):
            problems.append(f"the column {name} is {_nature(here)} and was {_nature(there)}")
        elif not _has_same_ids(here, there, plans):
            problems.append(f"the ids of {name} are made in another way, and have no vocabulary to map them by")
    return problems


def _has_same_ids(here: Column, there: Column, plans: tuple[FeaturePlan, FeaturePlan]) -> bool:
    """Whether a column's ids mean the same in both, or can be mapped by the values of its vocabularies."""
    if here.cardinality is None or (here.vocabulary and there.vocabulary):
        return True
    now, before = (_made(plan, here.name) for plan in plans)
    return here.cardinality == there.cardinality and now == before


def _nature(column: Column) -> str:
    return f"{'a list of ' if column.ragged else ''}{'ids' if column.cardinality else 'numbers'}"


def _plan_of(data: PreparedData) -> FeaturePlan:
    return FeaturePlan.model_validate_json((data.folder / "plan.json").read_text(encoding="utf-8"))


def _made(plan: FeaturePlan, column: str) -> list[object]:
    """Return the ops that make a column that has no vocabulary: equal ops give equal values equal ids."""
    concerned = [op for op in plan.ops if column in getattr(op, "columns", ()) or column == getattr(op, "output", None)]
    return [op.model_dump(mode="json", exclude={"columns"} if op.columnwise else None) for op in concerned]


def _misfits(model: Model, weights: dict[str, Tensor], tables: dict[str, tuple[Embeddings, str]]) -> list[str]:
    """Say which weights have another shape, or are on one side only; of tables only the widths have to agree."""
    here = {key: tuple(tensor.shape) for key, tensor in model.state_dict().items() if key not in tables}
    there = {key: tuple(tensor.shape) for key, tensor in weights.items() if key not in tables}
    widths = {key: weights[key].shape[1] if key in weights else None for key in tables}
    problems = [
        f"the embedding of {name} is {owner.dims[name]} wide and was {widths[key] or 'not there'}"
        for key, (owner, name) in tables.items()
        if owner.dims[name] != widths[key]
    ]
    differ = [key for key in {**here, **there} if here.get(key) != there.get(key)]
    return problems + [f"{key} is {_shape(here.get(key))} and was {_shape(there.get(key))}" for key in differ]


def _shape(shape: tuple[int, ...] | None) -> str:
    if shape is None:
        return "not there"
    return " × ".join(map(str, shape)) if shape else "a single number"


def _same_rows(old: Column, new: Column, before: PreparedData, now: PreparedData) -> tuple[Tensor, Tensor]:
    """Return the rows of a column's old table, and where each of them goes in the new one; both int64."""
    if old.vocabulary is None or new.vocabulary is None:
        every = torch.arange(new.cardinality or 0)
        return every, every
    known = pq.read_table(before.vocabulary(old.vocabulary), columns=["value"])["value"]
    wanted = pq.read_table(now.vocabulary(new.vocabulary), columns=["value"])["value"]
    try:
        places = pc.index_in(known.cast(wanted.type), value_set=wanted)
    except pa.ArrowInvalid as error:
        raise ConfigError(f"the values of {new.name} were {known.type} and are {wanted.type}: {error}") from error
    ids = torch.from_numpy(pc.fill_null(places, -1).to_numpy().astype("int64"))
    kept = torch.nonzero(ids >= 0).flatten()
    reserved = torch.arange(FIRST)
    buckets = torch.arange(new.buckets if new.buckets == old.buckets else 0)
    first_old, first_new = old.own_ids.stop, new.own_ids.stop
    return torch.cat([reserved, kept + FIRST, buckets + first_old]), torch.cat(
        [reserved, ids[kept] + FIRST, buckets + first_new]
    )
