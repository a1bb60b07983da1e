"""Inputs and outputs of exported programs, as in signature.json."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ENCODED = ".encoded"
"""Suffix of an encoded input of a program of raw values, because the raw column may be an input as well."""


@dataclass(frozen=True)
class Input:
    """An input of an exported program.

    Attributes:
        name: Name of the tensor.
        dtype: int64, float32, float64, bool or string.
        shape: Names of the dimensions, all dynamic.
        cardinality: Exclusive upper bound of encoded ids; None for other values.
        rows: Exclusive upper bound of table rows, for keys with cold rows; None if ids are the only values.
        null: Value that stands for null, of raw values; None if there is none.
        why_encoded: Reason why an input of a program of raw values is an encoded value.
        mask_of: Name of the list whose elements this input marks; None for other inputs.
        of: Name of the encoded column; None for raw values and masks.
    """

    name: str
    dtype: str
    shape: tuple[str, ...]
    cardinality: int | None = None
    rows: int | None = None
    null: int | float | str | None = None
    why_encoded: str | None = None
    mask_of: str | None = None
    of: str | None = None

    def described(self) -> dict[str, Any]:
        """Return the entry of signature.json."""
        entry: dict[str, Any] = {"name": self.name, "dtype": self.dtype, "shape": list(self.shape)}
        if self.of is not None:
            entry["encoded"] = self.of
        if self.cardinality is not None:
            entry |= {"cardinality": self.cardinality, "out_of_range": "unseen"}
            if len(self.shape) > 1:
                entry["padding"] = 0
        if self.rows is not None:
            entry["rows"] = self.rows
        if self.null is not None:
            entry["null"] = "NaN" if self.null != self.null else self.null
        if self.mask_of is not None:
            entry["mask_of"] = self.mask_of
        if self.why_encoded is not None:
            entry["why_encoded"] = self.why_encoded
        return entry

    @classmethod
    def read(cls, entry: Mapping[str, Any]) -> Input:
        """Return the input of an entry of signature.json."""
        null = math.nan if entry.get("null") == "NaN" and entry["dtype"] == "float64" else entry.get("null")
        return cls(
            entry["name"], entry["dtype"], tuple(entry["shape"]), cardinality=entry.get("cardinality"),
            rows=entry.get("rows"), null=null, why_encoded=entry.get("why_encoded"), mask_of=entry.get("mask_of"),
            of=entry.get("encoded"),
        )  # fmt: skip


def signature(inputs: Sequence[Input], *, output: str, width: int | None, program: str) -> dict[str, Any]:
    """Return the signature of a program as JSON values.

    Args:
        inputs: Inputs in order.
        output: Name of the output.
        width: Width of output vectors; None for one score per row.
        program: Name of the file.
    """
    shape: list[str | int] = ["batch"] if width is None else ["batch", width]
    return {
        "file": program,
        "inputs": [one.described() for one in inputs],
        "outputs": [{"name": output, "dtype": "float32", "shape": shape}],
    }


def length_of(name: str) -> str:
    """Return the name of the dimension of a list's elements."""
    return f"length of {name}"
