"""Indicator columns of the ops that fill nulls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

import pyarrow as pa

from recsys_cli.features.spec import Spec

FILLED = "_filled"
"""Suffix of the indicator column."""


AnyFilling = TypeVar("AnyFilling", bound="Filling")


class Filling(Protocol):
    """Common options of ops that fill nulls."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to fill."""

    @property
    def add_binary_cols(self) -> bool:
        """Whether indicators are added."""


def names_differ(op: AnyFilling) -> AnyFilling:
    """Check, as a Pydantic validator, that no indicator has the name of a filled column."""
    both = sorted({name + FILLED for name in op.columns} & set(op.columns))
    if op.add_binary_cols and both:
        raise ValueError(f"add_binary_cols would overwrite the columns {', '.join(both)}; rename them first")
    return op


def indicators(inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
    """Return the specs of the indicators: int8, a list for a list."""
    return {
        name + FILLED: Spec(spec.holding(pa.int8()), dtype="int8", lengths=spec.lengths)
        for name, spec in inputs.items()
    }
