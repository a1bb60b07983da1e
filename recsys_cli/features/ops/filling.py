"""The columns in which ops that fill nulls say where they did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

import pyarrow as pa

from recsys_cli.features.spec import Spec

FILLED = "_filled"
"""Suffix of the column that is 1 where a value was filled in."""


AnyFilling = TypeVar("AnyFilling", bound="Filling")


class Filling(Protocol):
    """What ops that fill nulls have in common."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are filled."""

    @property
    def add_binary_cols(self) -> bool:
        """Whether there are indicators."""


def names_differ(op: AnyFilling) -> AnyFilling:
    """Return the op: a validator, that no indicator is named like a column that is filled.

    Raises:
        ValueError: One is.
    """
    both = sorted({name + FILLED for name in op.columns} & set(op.columns))
    if op.add_binary_cols and both:
        raise ValueError(f"add_binary_cols would write {', '.join(both)}, which is to be filled itself")
    return op


def indicators(inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
    """Describe the indicators of columns: int8, a list for a list."""
    return {
        name + FILLED: Spec(spec.holding(pa.int8()), dtype="int8", lengths=spec.lengths)
        for name, spec in inputs.items()
    }
