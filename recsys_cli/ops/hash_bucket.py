"""Values to a fixed number of ids, without a vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import AfterValidator, Field, model_validator

from recsys_cli.errors import ConfigError
from recsys_cli.features.hashing import can_hash
from recsys_cli.features.schema import FIRST
from recsys_cli.features.spec import Spec
from recsys_cli.ops.categorify import MAX_BUCKETS
from recsys_cli.ops.fields import FrozenDict, Names
from recsys_cli.ops.op import Op

Buckets = Annotated[int, Field(ge=1, le=MAX_BUCKETS)]


class HashBucket(Op):
    """Map values to a fixed number of ids by a hash; different values may share an id.

    The id is 3 + bucket; the bucket is the upper half of the hash, scaled to the number of buckets
    (`hashing.hash_values`, `hashing.below`). It is the same on every machine, engine and release, and for equal values of
    different columns. Integers and booleans hash by value, dates and times by the stored integer, text by its UTF-8
    bytes; -0.0 equals 0.0.
    Nulls: null and NaN become 1; ids 0 and 2 are unused.
    Lists: element by element; a null list becomes an empty one.
    Fitted: nothing; unseen values are hashed as any other.
    Output: int32, named as the input; lists stay lists. The cardinality is 3 + the number of buckets.
    """

    columnwise: ClassVar[bool] = True

    op: Literal["HashBucket"] = "HashBucket"
    columns: Annotated[Names, Field(min_length=1)]
    """Columns to encode."""
    num_buckets: Buckets | Annotated[dict[str, Buckets], AfterValidator(FrozenDict)]
    """Number of buckets, for all columns or by column."""

    @model_validator(mode="after")
    def _each_has_buckets(self) -> Self:
        if not isinstance(self.num_buckets, int) and set(self.num_buckets) != set(self.columns):
            raise ValueError(f"num_buckets names {list(self.num_buckets)}, but the columns are {list(self.columns)}")
        return self

    def buckets_of(self, column: str) -> int:
        """Return the number of buckets of a column."""
        return self.num_buckets if isinstance(self.num_buckets, int) else self.num_buckets[column]

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the specs of the ids."""
        return {
            name: spec.computed(pa.int32(), categorical=True, dtype="int32", cardinality=FIRST + self.buckets_of(name))
            for name, spec in hashable(inputs).items()
        }


def hashable(inputs: Mapping[str, Spec]) -> Mapping[str, Spec]:
    """Return the columns; a `ConfigError` if a type has no hash."""
    for name, spec in inputs.items():
        if not can_hash(spec.element):
            raise ConfigError(f"{name!r} holds {spec.element}, which cannot be hashed; numbers, texts and times can")
    return inputs
