"""A small builder of ONNX graphs, and the columns in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from onnx import NodeProto, TensorProto, helper, numpy_helper

from recsys_cli.serving.export.inputs import Input

ML = "ai.onnx.ml"
OWN = "recsys"
"""Domain of the nodes outside ONNX, with the hash of `features.hashing`: Hash, Combine and Bucket."""
Kind = Literal["int64", "float64", "string"]
TYPES = {
    "int64": TensorProto.INT64, "float64": TensorProto.DOUBLE, "float32": TensorProto.FLOAT,
    "bool": TensorProto.BOOL, "string": TensorProto.STRING,
}  # fmt: skip


class Outside(Exception):  # noqa: N818 - a reason, not an error of the user
    """A value that the graph does not compute; the message is the reason."""


class Value(NamedTuple):
    """A column in the graph.

    Attributes:
        data: Tensor name.
        kind: Type of the values.
        nulls: Name of the null mask; None without nulls. Floats have NaN instead.
        mask: Name of the mask of list elements; None for single values.
    """

    data: str
    kind: Kind
    nulls: str | None = None
    mask: str | None = None

    def with_data(self, data: str, kind: Kind, nulls: str | None = None) -> Value:
        """Return other values in the shape of the column."""
        return Value(data, kind, nulls, self.mask)


Columns = dict[str, Value]
State = Mapping[str, pa.Table]


@dataclass
class Graph:
    """Nodes in order, with their inputs and constants.

    Attributes:
        hashes: Whether nodes of the domain `OWN` are allowed.
    """

    nodes: list[NodeProto] = field(default_factory=list)
    constants: list[TensorProto] = field(default_factory=list)
    inputs: dict[str, Input] = field(default_factory=dict)
    hashes: bool = False
    _number: int = 0

    def add(self, op: str, *inputs: str, output: str | None = None, domain: str = "", **attributes: Any) -> str:
        """Add a node with one output, and return the name of the output."""
        output = output or self._name(op)
        self.nodes.append(helper.make_node(op, list(inputs), [output], domain=domain, **attributes))
        return output

    def constant(self, values: npt.ArrayLike, dtype: str) -> str:
        """Add a constant of a NumPy type, and return its name."""
        name = self._name("constant")
        self.constants.append(numpy_helper.from_array(np.asarray(values, dtype=dtype), name))
        return name

    def text(self, value: str) -> str:
        """Add a constant text, and return its name."""
        name = self._name("text")
        self.constants.append(numpy_helper.from_array(np.array(value, dtype=object), name))
        return name

    def require(self, one: Input) -> str:
        """Add an input unless it exists, and return its name."""
        self.inputs.setdefault(one.name, one)
        return one.name

    def cast(self, name: str, dtype: str) -> str:
        """Cast a tensor."""
        return self.add("Cast", name, to=TYPES[dtype])

    def value_infos(self) -> list[Any]:
        """Return the inputs with symbolic dimensions."""
        return [
            helper.make_tensor_value_info(one.name, TYPES[one.dtype], list(one.shape)) for one in self.inputs.values()
        ]

    def floats(self, value: Value) -> str:
        """Return a column of numbers as float64, NaN for null."""
        if value.kind == "string":
            raise Outside("text is no number")
        data = value.data if value.kind == "float64" else self.cast(value.data, "float64")
        return data if value.nulls is None else self.add("Where", value.nulls, self.constant(np.nan, "float64"), data)

    def null_mask(self, value: Value) -> str | None:
        """Return the mask of null and NaN; None if there are none."""
        return self.add("IsNaN", value.data) if value.kind == "float64" else value.nulls

    def where(self, condition: str | None, constant: float, name: str, dtype: str) -> str:
        """Return a tensor with a constant where a condition holds."""
        return name if condition is None else self.add("Where", condition, self.constant(constant, dtype), name)

    def _name(self, what: str) -> str:
        self._number += 1
        return f"rows/{what}_{self._number}"
