"""Dropna: leave out interactions with missing values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from recsys_cli.features.ops.fields import Names
from recsys_cli.features.ops.op import Op, Phase
from recsys_cli.features.spec import Spec


class Dropna(Op):
    """Leave out the interactions that have a null in one of some columns.

    NaN is null. A null list is null; an empty list is not, and neither is a list with nulls in it. A column without any
    value (all null) leaves no row. Rows are chosen before the split and before everything that is fitted, each on its
    own, so an empty input stays empty. Nothing is fitted. No column changes.
    """

    phase: ClassVar[Phase] = "rows"
    drops_only: ClassVar[bool] = True

    op: Literal["Dropna"] = "Dropna"
    columns: Names = ()
    """Columns that need a value; empty for all columns of the interactions that the config reads or has computed before."""

    @property
    def reads_all(self) -> bool:
        """Whether no column is named."""
        return not self.columns

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return nothing: rows are left out, and no column changes."""
        del inputs
        return {}
