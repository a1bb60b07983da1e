"""Base of the ops that fill nulls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

import pyarrow as pa
from pydantic import model_validator

from recsys_cli.features.spec import Spec
from recsys_cli.ops.op import NumericOp

FILLED = "_filled"
"""Suffix of the indicator column."""


class FillingOp(NumericOp):
    """Op that fills nulls, optionally with an indicator column for each column."""

    if TYPE_CHECKING:  # each op has the fields at their own positions among the others
        columns: tuple[str, ...]
        add_binary_cols: bool

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        both = sorted({name + FILLED for name in self.columns} & set(self.columns))
        if self.add_binary_cols and both:
            raise ValueError(f"add_binary_cols would overwrite the columns {', '.join(both)}; rename them first")
        return self

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the filled columns and the indicators, int8."""
        return self.filled(inputs) | {
            name + FILLED: Spec(spec.holding(pa.int8()), dtype="int8", lengths=spec.lengths)
            for name, spec in inputs.items()
            if self.add_binary_cols
        }

    def filled(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the filled columns."""
        return super().outputs(inputs)
