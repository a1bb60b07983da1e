"""Categorify: values to small integers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from recsys_cli.features.ops.op import Op


class Categorify(Op):
    """Replace values by ids: 0 padding, 1 null, 2 unseen, then the vocabulary from 3 on.

    Fitted: one vocabulary per column, on the train split: distinct values by (count descending, value ascending);
    text is ordered by its UTF-8 bytes. A joined column is counted over the train interactions, as if joined.
    Nulls become 1, values that the train split does not have become 2. A list is encoded element by element and keeps its length;
    a null list is an empty list. Empty and all-null input gives an empty vocabulary, hence cardinality 3.
    Output: int32, named as the input; a list stays a list. Ids 0 and 2 never come out of the train split itself.
    """

    op: Literal["Categorify"] = "Categorify"
    columns: tuple[str, ...] = Field(min_length=1)
    """Columns to encode, each with its own vocabulary."""
