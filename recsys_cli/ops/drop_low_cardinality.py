"""No columns with few distinct values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import FIRST
from recsys_cli.features.spec import Spec
from recsys_cli.ops.op import Names, Op


class DropLowCardinality(Op):
    """Drop categorical columns with few distinct values in train, such as constants.

    A column is dropped from every split and table if its vocabulary, fitted by Categorify, has fewer than
    `min_cardinality` values. Null, unseen, padding, buckets and values below `freq_threshold` do not count; in NVTabular,
    where the highest id decides, they do. Columns named by `features` outside its ops and keys of joins cannot be
    dropped, and no later op may read a column that might be.
    Lists: counted by element.
    Fitted: nothing; the vocabulary decides.
    Output: the remaining columns, unchanged.
    """

    columnwise: ClassVar[bool] = True
    acts: ClassVar[bool] = False

    op: Literal["DropLowCardinality"] = "DropLowCardinality"
    columns: Annotated[Names, Field(min_length=1)]
    """Candidate columns, each the output of a Categorify."""
    min_cardinality: int = Field(default=2, ge=1)
    """Minimum number of distinct values."""

    @property
    def may_drop(self) -> tuple[str, ...]:
        """The columns."""
        return self.columns

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the remaining columns; all of them before fitting."""
        for name, spec in inputs.items():
            if spec.vocabulary is None:
                raise ConfigError(f"{name!r} has no vocabulary; put this op after the Categorify of the column")
        return {name: spec if self._keeps(spec) else None for name, spec in inputs.items()}

    def _keeps(self, spec: Spec) -> bool:
        return spec.cardinality is None or spec.cardinality - FIRST - spec.buckets >= self.min_cardinality
