"""Categorify: values to small integers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from recsys_cli.features.ops.op import Op
from recsys_cli.features.schema import FIRST
from recsys_cli.features.spec import Spec

REST = ".rest"
"""Suffix of a vocabulary's second table: how many values of train are `null`, and how many are `unseen` (infrequent)."""


class Categorify(Op):
    """Replace values by ids: 0 padding, 1 null, 2 unseen, then the vocabulary from 3 on.

    Fitted: one vocabulary per column, on the train split: distinct values by (count descending, value ascending);
    text is ordered by its UTF-8 bytes. A joined column is counted over the train interactions, as if joined.
    Nulls become 1, values that the train split does not have become 2. A list is encoded element by element and keeps its length;
    a null list is an empty list. Empty and all-null input gives an empty vocabulary, hence cardinality 3.
    Output: int32, named as the input; a list stays a list. Ids 0 and 2 never come out of the train split itself.
    """

    fitted: ClassVar[bool] = True
    columnwise: ClassVar[bool] = True

    op: Literal["Categorify"] = "Categorify"
    columns: tuple[str, ...] = Field(min_length=1)
    """Columns to encode, each with its own vocabulary."""

    @property
    def learns(self) -> tuple[str, ...]:
        """Names of the vocabularies."""
        return tuple(dict.fromkeys(map(self.vocabulary_of, self.columns)))

    @property
    def states(self) -> tuple[str, ...]:
        """Names of the vocabularies, and of what they leave out."""
        return tuple(name for vocabulary in self.learns for name in (vocabulary, vocabulary + REST))

    @property
    def buckets(self) -> int:
        """Rows behind the vocabulary."""
        return 0

    def vocabulary_of(self, column: str) -> str:
        """Return the name of the vocabulary of one of its columns."""
        return column

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Describe the columns of ids."""
        return {
            name: Spec(
                spec.holding(pa.int32()), categorical=True, vocabulary=self.vocabulary_of(name), dtype="int32",
                tags=spec.tags,
            )
            for name, spec in inputs.items()
        }  # fmt: skip

    def learnt(self, outputs: dict[str, Spec | None], state: Mapping[str, pa.Table]) -> dict[str, Spec | None]:
        """Describe the columns with the rows of their embedding tables."""
        found: dict[str, Spec | None] = {}
        for name, spec in outputs.items():
            assert spec is not None
            known = state[self.vocabulary_of(name)].num_rows
            found[name] = replace(spec, cardinality=FIRST + known)
        return found
