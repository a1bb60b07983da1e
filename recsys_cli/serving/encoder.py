"""Encoding of raw rows to model inputs by a fitted plan, in NumPy: equal to the engines, and fast for one row."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import torch

from recsys_cli.batch import Feature, Ragged
from recsys_cli.errors import ConfigError, DataError
from recsys_cli.features.columns import row_column
from recsys_cli.features.schema import Column, Kind, Role, Schema
from recsys_cli.features.spec import Spec
from recsys_cli.ops import Categorify
from recsys_cli.ops.fitted_plan import FittedPlan, time_formats
from recsys_cli.ops.grouping import GroupOp
from recsys_cli.ops.numeric import FILLED
from recsys_cli.ops.op import Op
from recsys_cli.ops.program import FLAT, INTERACTIONS, Gather, Locate
from recsys_cli.ops.values import Apply, Array, Columns, Types, Values
from recsys_cli.ops.vocabulary import VocabularyIndex
from recsys_cli.registry import is_own
from recsys_cli.serving.raw_values import reader


@dataclass(frozen=True)
class Node:
    """A step over rows.

    Attributes:
        op: The op, restricted to the needed columns.
        index: Its position in the state.
        writes: Its outputs by name, with their types if the caller has to bring them.
        brought: Whether it reads other rows, so that the caller brings the outputs.
    """

    op: Op | Gather | Locate
    index: int
    writes: Mapping[str, pa.DataType | None]
    brought: bool = False


@dataclass(frozen=True)
class Slice:
    """The needed part of a plan.

    Attributes:
        nodes: Steps in order.
        inputs: Types of the required columns: raw ones, and outputs of ops that read other rows.
        brought: The op of each of the latter.
    """

    nodes: tuple[Node, ...]
    inputs: Mapping[str, pa.DataType]
    brought: Mapping[str, str]


def slice_plan(fitted: FittedPlan, wanted: Collection[str]) -> Slice:
    """Return the part of a plan that computes some columns of the interactions."""
    needed: set[str] = set(wanted)
    nodes: list[Node] = []
    inputs: dict[str, pa.DataType] = {}
    brought: dict[str, str] = {}
    for node in reversed(list(_nodes(fitted))):
        hit = needed & set(node.writes)
        if not hit:
            continue
        if node.brought:
            inputs |= {name: cast("pa.DataType", node.writes[name]) for name in sorted(hit)}
            brought |= dict.fromkeys(hit, node.op.name)
            needed -= set(node.writes)
            continue
        part = _restricted(node, hit)
        nodes.append(part)
        needed = (needed - set(part.writes)) | set(part.writes if part.op.encodes else part.op.reads_to_apply)
        if isinstance(part.op, Gather) and not fitted.has_cold(part.op.table, train=False):
            needed.discard(row_column(part.op.table))
    raw = fitted.inputs[INTERACTIONS]
    inputs = {name: raw.field(name).type for name in raw.names if name in needed} | inputs
    return Slice(tuple(reversed(nodes)), inputs, brought)


def _nodes(fitted: FittedPlan) -> Iterator[Node]:
    """Yield the steps of the interactions in order: those before the split, after it, and the joins of the flat layout."""
    program = fitted.program
    specs = {field.name: Spec(field.type) for field in fitted.inputs[INTERACTIONS]}
    for index, op in program.rows:
        if op.drops_only or not op.acts:
            continue
        outputs = op.outputs({name: specs[name] for name in op.reads})
        specs = {name: spec for name, spec in ({} if op.replaces else specs).items() if name not in outputs}
        specs |= {name: spec for name, spec in outputs.items() if spec is not None}
        writes = {name: None if spec is None else spec.type for name, spec in outputs.items()}
        yield Node(op, index, writes, brought=op.phase == "rows")
    for step in program.transforms(None):
        if not isinstance(step.op, Locate) or fitted.has_cold(step.op.key, train=False):
            yield Node(step.op, step.index, dict.fromkeys(step.writes))
    for key in program.keys:
        names = [name for name, _, home in program.columns if home == key and name not in fitted.plan.drop]
        if names and all((FLAT, state) in fitted.state for state in Gather(key, tuple(names)).states):
            yield Node(Gather(key, tuple(names)), FLAT, dict.fromkeys(names))


def _restricted(node: Node, hit: set[str]) -> Node:
    """Restrict an op to the columns whose outputs are needed."""
    op: Any = node.op
    if isinstance(op, Gather):
        op = replace(op, columns=tuple(name for name in op.columns if name in hit))
        return replace(node, op=op, writes=dict.fromkeys(op.columns))
    if isinstance(op, Locate) or not is_own(type(op).__module__):
        return node
    if isinstance(op, GroupOp):
        groups = tuple(group for group in op.columns if hit & set(op.written(group).values()))
        return replace(node, op=op.model_copy(update={"columns": groups}), writes=dict.fromkeys(hit))
    if op.encodes and not op.separable:
        return replace(node, writes=dict.fromkeys(hit))  # one vocabulary, but each column is encoded on its own
    if not op.separable:
        return node
    columns = tuple(name for name in op.reads if hit & _written(op, name))
    if not columns:
        return node
    part = op.only(columns)
    return replace(
        node, op=part, writes=dict.fromkeys(set(node.writes) & set().union(*(_written(op, n) for n in columns)))
    )


def _written(op: Op, column: str) -> set[str]:
    """Return the outputs of a column of an op that computes each column independently."""
    return {column, op.renames[column]} if op.renames else {column, column + FILLED}


class Lists(NamedTuple):
    """A ragged column of N rows.

    Attributes:
        values: Concatenated elements.
        offsets: Start of each row's list, plus the number of elements at the end, int64, shape (N + 1,).
    """

    values: Array
    offsets: Array


class RowEncoder:
    """Encodes raw rows; compiled once, without engines and Arrow tables per call. Safe for concurrent calls.

    Args:
        fitted: The fitted plan.
        schema: The prepared columns.
        only: Columns to compute, the timestamp included; None for all features of the interactions, with their element weights.
        indexes: Indexes of vocabularies by name, and of cold keys by column of table rows; the others are built here.

    Attributes:
        inputs: Types of the required columns.
        brought: Required columns that an op would compute from other rows, each with the name of the op.
        columns: Computed columns, in the order of the schema.

    Raises:
        ConfigError: A column does not exist, or depends on an op without an implementation for single rows.
    """

    def __init__(
        self,
        fitted: FittedPlan,
        schema: Schema,
        *,
        only: Collection[str] | None = None,
        indexes: Mapping[str, VocabularyIndex] | None = None,
    ) -> None:
        self.columns = _wanted(fitted, schema, only)
        names = [column.name for column in self.columns]
        keys = [key for key in fitted.program.keys if key in names and fitted.has_cold(key, train=False)]
        part = slice_plan(fitted, [*names, *map(row_column, keys)])
        self.inputs: Mapping[str, pa.DataType] = part.inputs
        self.brought: Mapping[str, str] = part.brought
        ids, times = fitted.plan.raw_ids, time_formats(fitted.inputs[INTERACTIONS])
        self._readers = {n: reader(n, kind, is_id=n in ids, how=times.get(n, "iso")) for n, kind in part.inputs.items()}
        types: Types = dict(part.inputs)
        self._steps = compile_nodes(part.nodes, fitted, types, indexes or {})
        self._outputs = {column.name: finisher(column.dtype) for column in self.columns}
        self._rows = {key: row_column(key) for key in keys}
        self._floats = [c.name for c in self.columns if c.kind is Kind.NUMERIC and c.dtype != "float32"]
        self._weighted = {c.name: c.weights for c in self.columns if c.weights is not None}
        self._inputs = [c.name for c in self.columns if c.role is not Role.LIST_WEIGHT]

    def encode(self, columns: Mapping[str, Sequence[Any] | Array]) -> dict[str, Feature]:
        """Encode raw rows: ids as int32, numbers as float32, lists as Ragged, table rows of cold keys as int32.

        Args:
            columns: Raw values by column, of equal length: Python values as of JSON, None for null, or NumPy arrays.
                Further columns are ignored.

        Raises:
            DataError: A column is missing, or a value does not fit its type.
        """
        arrays = self.arrays(columns)
        for name in self._floats:
            values = arrays[name]
            arrays[name] = (
                Lists(values.values.astype(np.float32), values.offsets)
                if isinstance(values, Lists)
                else values.astype(np.float32)
            )
        features = {name: _feature(arrays[name]) for name in (*self._inputs, *self._rows.values())}
        for name, weights in self._weighted.items():
            features[name] = _with_weights(name, features[name], weights, arrays[weights])
        return features

    def arrays(self, columns: Mapping[str, Sequence[Any] | Array]) -> dict[str, Array | Lists]:
        """Encode raw rows to NumPy arrays in the types of the prepared data. Arguments and errors as in `encode`."""
        rows_of, rows = self._read(columns)
        with np.errstate(all="ignore"):
            for step in self._steps:
                step(rows_of, rows)
            encoded = {name: finish(rows_of[name]) for name, finish in self._outputs.items()}
        for key, name in self._rows.items():
            encoded[name] = np.maximum(rows_of[key].data, rows_of[name].data)
        return encoded

    def _read(self, columns: Mapping[str, Sequence[Any] | Array]) -> tuple[Columns, int]:
        rows_of: Columns = {}
        rows = -1
        for name, read in self._readers.items():
            if name not in columns:
                raise self._lacking(columns)
            rows_of[name] = values = read(columns[name])
            size = len(values.data) if values.offsets is None else len(values.offsets) - 1
            if size != rows >= 0:
                raise DataError(
                    f"column {name} has {size} rows, and {next(iter(rows_of))} has {rows}",
                    hint="give one value for each row",
                )
            rows = size
        return rows_of, max(rows, 0)

    def _lacking(self, columns: Collection[str]) -> DataError:
        missing = [name for name in self.inputs if name not in columns]
        others = [
            f"{name} ({self.brought[name]} computes it from other rows)" for name in missing if name in self.brought
        ]
        shown = ", ".join([name for name in missing if name not in self.brought] + others)
        return DataError(
            f"no column {shown}; the columns are {', '.join(columns) or 'none'}",
            hint=f"the model needs {', '.join(self.inputs)}; give null for an unknown value",
        )


def compile_nodes(
    nodes: Sequence[Node], fitted: FittedPlan, types: Types, indexes: Mapping[str, VocabularyIndex]
) -> list[Apply]:
    """Compile steps in order; `types` of the raw columns get those of the outputs."""
    steps: list[Apply] = []
    for node in nodes:
        state = {name: fitted.state[node.index, name] for name in node.op.states}
        if isinstance(node.op, Op) and (reason := node.op.refusal_for_rows()) is not None:
            raise ConfigError(reason, hint="remove the op from features.ops, or the columns that depend on it")
        if isinstance(node.op, Categorify | Locate):
            steps.append(node.op.numpy(state, types, indexes))
        else:
            steps.append(node.op.numpy(state, types))
    return steps


def _wanted(fitted: FittedPlan, schema: Schema, only: Collection[str] | None) -> list[Column]:
    """Return the columns of the interactions to compute: features, and the element weights of their lists.

    Joined columns of the flat layout are among them only if the plan is `flattened`; the tables by id have them too.

    Raises:
        ConfigError: A name is no feature of the interactions.
    """
    is_flattened = any(position == FLAT for position, _ in fitted.state)
    joined = set() if is_flattened else {name for name, _, home in fitted.program.columns if home is not None}
    columns = [column for column in schema.features if column.table is None and column.name not in joined]
    if only is not None:
        columns += schema.select(lambda column: column.role is Role.TIMESTAMP and column.table is None)
        unknown = set(only) - {column.name for column in columns}
        if unknown:
            raise ConfigError(f"no feature {', '.join(sorted(unknown))} in the interactions")
        columns = [column for column in columns if column.name in only]
    weights = {column.weights for column in columns} - {None}
    return [*columns, *schema.select(lambda column: column.name in weights)]


def finisher(dtype: str) -> Callable[[Values], Array | Lists]:
    """Return the cast of a column to its type in the prepared data."""
    kind = np.dtype(dtype)

    def finish(values: Values) -> Array | Lists:
        data = values.data
        if values.nulls is not None:
            missing = np.nan if kind.kind == "f" else 0
            data = np.where(values.nulls, missing, data if data.dtype != object else 0)
        data = data.astype(kind, copy=False)
        return data if values.offsets is None else Lists(data, values.offsets)

    return finish


def _feature(values: Array | Lists) -> Feature:
    if isinstance(values, Lists):
        return Ragged(torch.from_numpy(values.values), torch.from_numpy(values.offsets))
    return torch.from_numpy(values)


def _with_weights(name: str, feature: Feature, weights_name: str, weights: Array | Lists) -> Ragged:
    assert isinstance(feature, Ragged)
    assert isinstance(weights, Lists)
    if not np.array_equal(feature.offsets.numpy(), weights.offsets):
        lengths = zip(np.diff(feature.offsets.numpy()).tolist(), np.diff(weights.offsets).tolist(), strict=True)
        row, (one, other) = next((row, pair) for row, pair in enumerate(lengths) if pair[0] != pair[1])
        raise DataError(
            f"row {row + 1}: {name} has {one} elements, and {weights_name} has {other}", hint="give equal lists"
        )
    return Ragged(feature.values, feature.offsets, torch.from_numpy(weights.values.astype(np.float32, copy=False)))


class TableEncoder:
    """Encodes the joined columns of keys, such as the genres of movies; compiled once.

    Attributes:
        inputs: Types of the raw columns.

    Raises:
        ConfigError: A column depends on an op without an implementation for single rows.
    """

    def __init__(self, fitted: FittedPlan, key: str, indexes: Mapping[str, VocabularyIndex]) -> None:
        joins = [op for _, op in fitted.program.joins if op.on == key]
        self.inputs: Mapping[str, pa.DataType] = {
            name: fitted.inputs[op.table].field(name).type for op in joins for name in op.columns
        }
        self._readers = {name: reader(name, kind) for name, kind in self.inputs.items()}
        nodes = [Node(step.op, step.index, dict.fromkeys(step.writes)) for step in fitted.program.transforms(key)]
        types: Types = dict(self.inputs)
        self._steps = compile_nodes(nodes, fitted, types, indexes)
        self._outputs = {column.name: finisher(column.dtype) for column in fitted.schema("star").in_table(key)}

    def encode(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        """Return the prepared columns of raw rows; a missing column is null.

        Raises:
            DataError: A value does not fit its type.
        """
        columns: Columns = {name: read([row.get(name) for row in rows]) for name, read in self._readers.items()}
        with np.errstate(all="ignore"):
            for step in self._steps:
                step(columns, len(rows))
            return pa.table({name: _arrow(finish(columns[name])) for name, finish in self._outputs.items()})


def _arrow(values: Array | Lists) -> pa.Array:
    if isinstance(values, Lists):
        return pa.ListArray.from_arrays(pa.array(values.offsets.astype(np.int32)), pa.array(values.values))
    return pa.array(values)
