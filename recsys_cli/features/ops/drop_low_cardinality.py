"""DropLowCardinality: no columns that say next to nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from recsys_cli.errors import ConfigError
from recsys_cli.features.ops.fields import Names
from recsys_cli.features.ops.op import Op
from recsys_cli.features.schema import FIRST
from recsys_cli.features.spec import Spec


class DropLowCardinality(Op):
    """Leave out categorical columns that have too few values in train to tell anything, such as one value in every row.

    A column is dropped if its vocabulary, which its Categorify has learnt from train, has fewer than `min_cardinality`
    values: null and unseen are none, nor are padding and buckets, and values below a `freq_threshold` are not in it.
    (NVTabular compares the highest id instead, where those count.) Lists count by their elements. No row is looked at,
    empty input gives an empty vocabulary, and what is dropped is dropped from every split and table.
    The columns that `features` names beside its ops, and keys of joins, cannot be dropped, and no later op may read a column
    that might be. Nothing is fitted: what Categorify has learnt decides.
    Output: the columns that are left, as they are.
    """

    columnwise: ClassVar[bool] = True
    acts: ClassVar[bool] = False

    op: Literal["DropLowCardinality"] = "DropLowCardinality"
    columns: Annotated[Names, Field(min_length=1)]
    """Columns to look at; each has come out of a Categorify."""
    min_cardinality: int = Field(default=2, ge=1)
    """How many different values a column needs to be kept."""

    @property
    def may_drop(self) -> tuple[str, ...]:
        """Its columns."""
        return self.columns

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Describe the columns; all of them as long as nothing has been learnt.

        Raises:
            ConfigError: A column has no vocabulary.
        """
        for name, spec in inputs.items():
            if spec.vocabulary is None:
                raise ConfigError(f"{name!r} has no vocabulary; let it come after the Categorify of it")
        return {name: spec if self._keeps(spec) else None for name, spec in inputs.items()}

    def _keeps(self, spec: Spec) -> bool:
        return spec.cardinality is None or spec.cardinality - FIRST - spec.buckets >= self.min_cardinality
