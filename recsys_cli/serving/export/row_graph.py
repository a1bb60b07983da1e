"""The first part of an ONNX file: raw values to the encoded inputs of a program."""

from __future__ import annotations

from dataclasses import replace

from recsys_cli.features.columns import row_column
from recsys_cli.features.schema import Schema
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.serving.encoder.slicing import slice_plan
from recsys_cli.serving.export.graph import Columns, Graph, Outside, Value
from recsys_cli.serving.export.inputs import ENCODED, Input
from recsys_cli.serving.export.onnx_ops import emit
from recsys_cli.serving.export.raw_inputs import raw_value


def encode_rows(
    fitted: FittedPlan, schema: Schema, inputs: tuple[Input, ...], *, prefix: str, hashes: bool = False
) -> tuple[Graph, dict[str, str]]:
    """Return the graph that computes the inputs of a program.

    Args:
        fitted: The fitted plan.
        schema: Prepared columns.
        inputs: Inputs of the program.
        prefix: Prefix of the program's tensor names.
        hashes: Compute hash buckets by nodes outside ONNX.

    Returns:
        The graph, and the inputs that stay encoded, with the reason.
    """
    graph, encoded = Graph(hashes=hashes), {}
    for one in inputs:
        try:
            part = _computed(graph, fitted, schema, one)
        except Outside as outside:
            encoded[one.name] = str(outside)
            part = graph.require(replace(one, name=one.name + ENCODED, why_encoded=str(outside)))
        graph.add("Identity", part, output=prefix + one.name)
    return graph, encoded


def _computed(graph: Graph, fitted: FittedPlan, schema: Schema, one: Input) -> str:
    """Add the nodes of one input, and return its tensor.

    Raises:
        Outside: An op or a type has no ONNX form; the graph is unchanged.
    """
    part = Graph(_number=graph._number, inputs=dict(graph.inputs), hashes=graph.hashes)
    wanted = [one.name, row_column(one.name)] if one.rows is not None else [one.name]
    sliced = slice_plan(fitted, wanted)
    if sliced.brought:
        raise Outside(f"{next(iter(sliced.brought.values()))} reads other rows")
    columns: Columns = {name: raw_value(part, name, kind) for name, kind in sliced.inputs.items()}
    for node in sliced.nodes:
        state = {name: fitted.state[node.index, name] for name in node.op.states}
        emit(part, node.op, state, columns, frozenset(node.writes))
    name = _finished(part, columns[one.name], one, schema[one.name].dtype)
    if one.rows is not None:
        name = part.add("Max", name, columns[row_column(one.name)].data)
    graph.nodes += part.nodes
    graph.constants += part.constants
    graph.inputs, graph._number = part.inputs, part._number
    return name


def _finished(graph: Graph, value: Value, one: Input, dtype: str) -> str:
    """Return a column in the type of the program's input; padding of lists is 0."""
    if dtype.startswith("float"):
        data = graph.cast(graph.floats(value), "float32")
    elif value.kind == "string":
        raise Outside("text is no number")
    else:
        data = value.data if value.kind == "int64" else graph.cast(value.data, "int64")
        data = graph.where(value.nulls, 0, data, "int64")
        data = data if one.dtype == "int64" else graph.cast(data, one.dtype)
    if value.mask is None:
        return data
    return graph.add("Where", value.mask, data, graph.constant(0, one.dtype))
