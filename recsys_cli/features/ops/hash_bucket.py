"""HashBucket: values to a fixed number of ids, with nothing to learn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import AfterValidator, Field, model_validator

from recsys_cli.errors import ConfigError
from recsys_cli.features.hashing import can_hash
from recsys_cli.features.ops.categorify import MAX_BUCKETS
from recsys_cli.features.ops.fields import FrozenDict, Names
from recsys_cli.features.ops.op import Op
from recsys_cli.features.schema import FIRST
from recsys_cli.features.spec import Spec

Buckets = Annotated[int, Field(ge=1, le=MAX_BUCKETS)]


class HashBucket(Op):
    """Spread values over a fixed number of ids by a hash of the value; different values may share an id.

    A value becomes 3 + bucket, where the bucket is the hash's upper half scaled down to the number of buckets
    (`hashing.hash_values`, `hashing.below`): the same on every machine, for every engine and in every release. Whole numbers
    of any width and truth values hash by their value, dates and times by the integer that is stored, texts by their UTF-8
    bytes; -0.0 is 0.0. Nulls and NaN become 1; 0 and 2 never come out. Equal values of different columns have equal hashes.
    Nothing is fitted: unseen values are values as all others, and so are those of constant columns and of one row; empty
    input stays empty.
    A list is encoded element by element and keeps its length; a null list is an empty list.
    Output: int32, named as the input; a list stays a list. Its cardinality is 3 + the number of buckets.
    """

    columnwise: ClassVar[bool] = True

    op: Literal["HashBucket"] = "HashBucket"
    columns: Annotated[Names, Field(min_length=1)]
    """Columns to encode."""
    num_buckets: Buckets | Annotated[dict[str, Buckets], AfterValidator(FrozenDict)]
    """How many ids, for all columns or by column."""

    @model_validator(mode="after")
    def _each_has_buckets(self) -> Self:
        if not isinstance(self.num_buckets, int) and set(self.num_buckets) != set(self.columns):
            raise ValueError(f"num_buckets names {list(self.num_buckets)} and the columns are {list(self.columns)}")
        return self

    def buckets_of(self, column: str) -> int:
        """Return the number of buckets of a column."""
        return self.num_buckets if isinstance(self.num_buckets, int) else self.num_buckets[column]

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Describe the columns of ids.

        Raises:
            ConfigError: A column holds values that cannot be hashed.
        """
        return {
            name: Spec(
                spec.holding(pa.int32()),
                categorical=True,
                dtype="int32",
                cardinality=FIRST + self.buckets_of(name),
                tags=spec.tags,
                lengths=spec.lengths,
            )
            for name, spec in hashable(inputs).items()
        }


def hashable(inputs: Mapping[str, Spec]) -> Mapping[str, Spec]:
    """Return the columns if the values of all can be hashed.

    Raises:
        ConfigError: One of them holds something else.
    """
    for name, spec in inputs.items():
        if not can_hash(spec.element):
            raise ConfigError(f"{name!r} holds {spec.element}, which cannot be hashed; numbers, texts and times can")
    return inputs
