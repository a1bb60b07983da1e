"""Raw columns as inputs of an ONNX graph, with a declared value for null."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa

from recsys_cli.features.columns import PREFIX
from recsys_cli.features.spec import is_list
from recsys_cli.serving.encoder.values import element
from recsys_cli.serving.export.graph import Graph, Kind, Outside, Value
from recsys_cli.serving.export.inputs import Input, length_of

NULL_INTEGER = int(np.iinfo(np.int64).min)
NULL_TEXT = f"{PREFIX}null"
NULLS: dict[Kind, int | float | str] = {"int64": NULL_INTEGER, "float64": math.nan, "string": NULL_TEXT}
MASK = ".mask"
"""Suffix of the input with the mask of a list."""


def kind_of(kind: pa.DataType) -> Kind:
    """Return the type of an input for a raw column.

    Raises:
        Outside: ONNX has no such type.
    """
    held, types = element(kind), pa.types
    if (types.is_integer(held) and not types.is_uint64(held)) or types.is_boolean(held):
        return "int64"
    if types.is_floating(held):
        return "float64"
    if types.is_string(held) or types.is_large_string(held):
        return "string"
    raise Outside(f"ONNX has no type for {held}")


def raw_value(graph: Graph, name: str, kind: pa.DataType) -> Value:
    """Return a raw column of the graph; adds its inputs.

    Raises:
        Outside: ONNX has no such type.
    """
    of = kind_of(kind)
    shape: tuple[str, ...] = ("batch",)
    mask = None
    if is_list(kind):
        shape = ("batch", length_of(name))
        mask = graph.require(Input(name + MASK, "bool", shape, mask_of=name))
    data = graph.require(Input(name, of, shape, null=NULLS[of]))
    if of == "float64":
        return Value(data, of, None, mask)
    null = graph.constant(NULL_INTEGER, "int64") if of == "int64" else graph.text(NULL_TEXT)
    return Value(data, of, graph.add("Equal", data, null), mask)
