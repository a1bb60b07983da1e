"""Ops of feature plans as ONNX nodes, equal to the row encoder: one function per op, and the table of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli import ops
from recsys_cli.features.schema import FIRST, NULL, UNSEEN
from recsys_cli.ops.filling import FILLED
from recsys_cli.ops.grouping import Group, members, name_of
from recsys_cli.ops.numeric import calculated_type
from recsys_cli.ops.reduce_dtype_size import reduced
from recsys_cli.ops.steps import Locate
from recsys_cli.serving.encoder import join_groupby, target_encoding
from recsys_cli.serving.encoder.vocabulary import ABSENT
from recsys_cli.serving.export.graph import ML, OWN, Columns, Graph, Kind, Outside, State, Value
from recsys_cli.serving.export.onnx_expressions import calculate
from recsys_cli.serving.export.raw_inputs import NULL_INTEGER, NULL_TEXT

_ARROW = {"int64": pa.int64(), "float64": pa.float64(), "string": pa.string()}


def emit(graph: Graph, op: Any, state: State, columns: Columns, wanted: frozenset[str]) -> None:
    """Add the nodes of an op, and set its output columns.

    Args:
        graph: The graph.
        op: Op, or step of a compiled plan.
        state: Its fitted state.
        columns: Columns by name.
        wanted: Output columns in use.

    Raises:
        Outside: The op has no ONNX form.
    """
    emitter = _EMITTERS.get(type(op))
    if emitter is None:
        raise Outside(f"{op.name} has no ONNX form")
    emitter(graph, op, state, columns, wanted)


def _categorify(graph: Graph, op: ops.Categorify, state: State, columns: Columns, wanted: frozenset[str]) -> None:
    if op.num_buckets and not graph.hashes:
        raise Outside("Categorify hashes unseen values (num_buckets)")
    for name in wanted & set(op.columns):
        values = state[op.vocabulary_of(name)].column("value")
        ids = _label_encoder(graph, columns[name], values, range(FIRST, FIRST + len(values)), default=UNSEEN)
        if op.num_buckets:
            unseen = graph.add("Equal", ids, graph.constant(UNSEEN, "int64"))
            bucket = _bucket(graph, graph.add("Hash", columns[name].data, domain=OWN), op.num_buckets, len(values))
            ids = graph.add("Where", unseen, bucket, ids)
        columns[name] = columns[name].with_data(graph.where(columns[name].nulls, NULL, ids, "int64"), "int64")


def _hash_bucket(graph: Graph, op: ops.HashBucket, state: State, columns: Columns, wanted: frozenset[str]) -> None:
    del state
    for name in wanted & set(op.columns):
        value = columns[name]
        ids = _bucket(graph, _hash(graph, op, value), op.buckets_of(name))
        columns[name] = value.with_data(graph.where(graph.null_mask(value), NULL, ids, "int64"), "int64")


def _hashed_cross(graph: Graph, op: ops.HashedCross, state: State, columns: Columns, wanted: frozenset[str]) -> None:
    del state, wanted
    first, *others = (columns[name] for name in op.columns)
    hashes = _hash(graph, op, first)
    for other in others:
        hashes = graph.add("Combine", hashes, _hash(graph, op, other), domain=OWN)
    ids = _bucket(graph, hashes, op.num_buckets)
    for value in (first, *others):
        ids = graph.where(graph.null_mask(value), NULL, ids, "int64")
    columns[op.output] = first.with_data(ids, "int64")


def _hash(graph: Graph, op: Any, value: Value) -> str:
    if not graph.hashes:
        raise Outside(f"{op.name} has no ONNX form")
    return graph.add("Hash", value.data, domain=OWN)


def _bucket(graph: Graph, hashes: str, num_buckets: int, num_values: int = 0) -> str:
    """Return the ids of hash buckets, after those of a vocabulary."""
    return graph.add("Bucket", hashes, domain=OWN, num_buckets=num_buckets, first=FIRST + num_values)


def _locate(graph: Graph, op: Locate, state: State, columns: Columns, wanted: frozenset[str]) -> None:
    del wanted
    cold, key = state[op.key], columns[op.key]
    rows = _label_encoder(graph, key, cold.column("value"), cold.column("row").to_pylist(), default=ABSENT)
    columns[op.output] = key.with_data(graph.where(key.nulls, ABSENT, rows, "int64"), "int64")


def _label_encoder(graph: Graph, value: Value, keys: pa.ChunkedArray, ids: Any, *, default: int) -> str:
    """Return the ids of values by a dictionary inside the graph; that of null is arbitrary."""
    held = keys.type.value_type if pa.types.is_dictionary(keys.type) else keys.type
    attributes: dict[str, Any] = {"values_int64s": [*ids, default], "default_int64": default}
    if value.kind == "string" and (pa.types.is_string(held) or pa.types.is_large_string(held)):
        attributes["keys_strings"] = [*keys.to_pylist(), NULL_TEXT]
    elif value.kind == "int64" and (pa.types.is_integer(held) or pa.types.is_boolean(held)):
        attributes["keys_int64s"] = [*map(int, keys.to_pylist()), NULL_INTEGER]
    else:
        raise Outside(f"ONNX looks up integers and text, and not {held}")
    return graph.add("LabelEncoder", value.data, domain=ML, **attributes)


def _fill(graph: Graph, op: Any, state: State, columns: Columns, wanted: frozenset[str]) -> None:
    for name in op.columns:
        value = columns[name]
        median = isinstance(op, ops.FillMedian)
        constant = state[name].column("median")[0].as_py() if median else op.fill_val
        kind = pa.float64() if median else calculated_type(_ARROW[value.kind], constant)
        nulls = graph.null_mask(value)
        data = graph.floats(value) if kind == pa.float64() else value.data
        if nulls is None and op.add_binary_cols and name + FILLED in wanted:
            raise Outside("a flag of a column without nulls")
        filled = graph.where(nulls, constant, data, str(np.dtype(kind.to_pandas_dtype())))
        columns[name] = value.with_data(filled, "float64" if kind == pa.float64() else "int64")
        if nulls is not None:
            columns[name + FILLED] = value.with_data(graph.cast(nulls, "int64"), "int64")


def _clip(graph: Graph, op: ops.Clip, state: State, columns: Columns, wanted: frozenset[str]) -> None:
    del state, wanted
    for name in op.columns:
        value = columns[name]
        whole = calculated_type(_ARROW[value.kind], op.min_value, op.max_value) == pa.int64()
        data, dtype = (value.data, "int64") if whole else (graph.floats(value), "float64")
        for bound, compare in ((op.min_value, "Less"), (op.max_value, "Greater")):
            if bound is not None:  # NaN passes through a comparison
                data = graph.where(graph.add(compare, data, graph.constant(bound, dtype)), bound, data, dtype)
        columns[name] = value.with_data(data, "int64" if whole else "float64", value.nulls if whole else None)


def _of_floats(calculate: Callable[[Graph, Any, str, State, str], str]) -> Callable[..., None]:
    """Return an op that computes each column by itself in float64."""

    def emitted(graph: Graph, op: Any, state: State, columns: Columns, wanted: frozenset[str]) -> None:
        del wanted
        for name in op.columns:
            columns[name] = columns[name].with_data(
                calculate(graph, op, name, state, graph.floats(columns[name])), "float64"
            )

    return emitted


def _log(graph: Graph, op: ops.LogOp, name: str, state: State, data: str) -> str:
    del op, name, state
    return graph.add("Log", graph.add("Add", data, graph.constant(1.0, "float64")))


def _standardized(graph: Graph, op: ops.Normalize, name: str, state: State, data: str) -> str:
    del op
    fitted = state[name].select(["mean", "std"]).to_pylist()[0]
    deviations = graph.add("Sub", data, graph.constant(fitted["mean"], "float64"))
    return graph.add("Div", deviations, graph.constant(fitted["std"], "float64")) if fitted["std"] > 0 else deviations


def _scaled(graph: Graph, op: ops.NormalizeMinMax, name: str, state: State, data: str) -> str:
    del op
    low, high = (state[name].column(end)[0].as_py() for end in ("low", "high"))
    if low == high:
        return graph.add("Where", graph.add("IsNaN", data), data, graph.constant(0.5, "float64"))
    above = graph.add("Sub", data, graph.constant(low, "float64"))
    return graph.add("Div", above, graph.constant(high - low, "float64"))


def _bucketize(graph: Graph, op: ops.Bucketize, state: State, columns: Columns, wanted: frozenset[str]) -> None:
    """Count the boundaries at or below each value by comparisons: exporters compute `bucketize` wrongly."""
    del state, wanted
    for name in op.columns:
        data, last = graph.floats(columns[name]), graph.constant([-1], "int64")
        reached = graph.add(
            "GreaterOrEqual", graph.add("Unsqueeze", data, last), graph.constant(op.of(name), "float64")
        )
        counts = graph.add("ReduceSum", graph.cast(reached, "int64"), last, keepdims=0)
        ids = graph.add("Add", counts, graph.constant(FIRST, "int64"))
        columns[name] = columns[name].with_data(graph.where(graph.add("IsNaN", data), NULL, ids, "int64"), "int64")


def _rename(graph: Graph, op: ops.Rename, state: State, columns: Columns, wanted: frozenset[str]) -> None:
    del graph, state, wanted
    for old, new in op.columns.items():
        columns[new] = columns.pop(old)


def _reduce(graph: Graph, op: ops.ReduceDtypeSize, state: State, columns: Columns, wanted: frozenset[str]) -> None:
    del wanted
    for name in op.columns:
        value = columns[name]
        if value.kind == "float64":
            columns[name] = value.with_data(graph.cast(graph.cast(value.data, "float32"), "float64"), "float64")
            continue
        ends, data = np.iinfo(reduced(state[name])), value.data
        for bound, compare in ((int(ends.min), "Less"), (int(ends.max), "Greater")):
            data = graph.where(graph.add(compare, data, graph.constant(bound, "int64")), bound, data, "int64")
        columns[name] = value.with_data(graph.where(value.nulls, 0, data, "int64"), "int64")


def _grouped(
    columns_of: Callable[[Any, Group, State], Mapping[str, npt.NDArray[Any]]],
) -> Callable[[Graph, Any, State, Columns, frozenset[str]], None]:
    """Return an op that looks up fitted values by one key; null is a group of its own."""

    def emitted(graph: Graph, op: Any, state: State, columns: Columns, wanted: frozenset[str]) -> None:
        for group in op.columns:
            found = {name: values for name, values in columns_of(op, group, state).items() if name in wanted}
            if not found:
                continue
            if len(members(group)) > 1:
                raise Outside(f"{op.name} of several columns has no ONNX form")
            key, keys = columns[members(group)[0]], state[name_of(group)].column("key0")
            absent, of_null = len(keys), pc.index(keys.is_null(), True).as_py()
            known = keys.drop_null()
            rows = np.flatnonzero(keys.is_valid().to_numpy()).tolist()
            row = _label_encoder(graph, key, known, rows, default=absent)
            row = graph.where(key.nulls, absent if of_null < 0 else of_null, row, "int64")
            for name, values in found.items():
                kind: Kind = "int64" if values.dtype.kind == "i" else "float64"
                columns[name] = key.with_data(graph.add("Gather", graph.constant(values, kind), row), kind)

    return emitted


_EMITTERS: dict[type, Callable[..., None]] = {
    ops.Bucketize: _bucketize,
    ops.Categorify: _categorify,
    ops.Clip: _clip,
    ops.FillMedian: _fill,
    ops.FillMissing: _fill,
    ops.HashBucket: _hash_bucket,
    ops.HashedCross: _hashed_cross,
    ops.JoinGroupby: _grouped(join_groupby.columns_of),
    ops.LambdaOp: calculate,
    ops.LogOp: _of_floats(_log),
    ops.Normalize: _of_floats(_standardized),
    ops.NormalizeMinMax: _of_floats(_scaled),
    ops.ReduceDtypeSize: _reduce,
    ops.Rename: _rename,
    ops.TargetEncoding: _grouped(target_encoding.columns_of),
    Locate: _locate,
}
