"""A hashed feature cross."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import Field

from recsys_cli.features.hashing import hash_counters, hash_values
from recsys_cli.features.schema import FIRST, NULL
from recsys_cli.features.spec import Spec
from recsys_cli.ops.hash_bucket import Buckets, hashable, missing
from recsys_cli.ops.op import Names, Op, Tables, scalars
from recsys_cli.ops.values import Apply, Columns, Types, Values, hashes_of, null_mask
from recsys_cli.ops.vocabulary import bucket_ids
from recsys_cli.packages import pl


class HashedCross(Op):
    """Cross several columns, such as city and device, to one column of ids by a hash of their values.

    The id is 3 + bucket. The hashes of the values (see HashBucket) are combined in the order of the columns, so (a, b)
    differs from (b, a); the upper half is scaled to the number of buckets. Different combinations may share an id.
    Encoded ids are hashed as numbers, those of null and unseen included.
    Nulls: a null or NaN in any column gives 1; ids 0 and 2 are unused.
    Lists: refused.
    Fitted: nothing; unseen combinations are hashed as any other.
    Output: int32, named by the columns with "_X_" between them. The cardinality is 3 + the number of buckets.
    """

    op: Literal["HashedCross"] = "HashedCross"
    columns: Annotated[Names, Field(min_length=2)]
    """Columns to cross, in order."""
    num_buckets: Buckets
    """Number of buckets."""

    @property
    def output(self) -> str:
        """Name of the output."""
        return "_X_".join(self.columns)

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the spec of the ids."""
        hashable(scalars(inputs))
        return {self.output: Spec(pa.int32(), categorical=True, dtype="int32", cardinality=FIRST + self.num_buckets)}

    def numpy(self, state: Tables, types: Types) -> Apply:
        """Add the crossed column as bucket ids."""
        types[self.output] = pa.int32()
        first, *others = self.columns

        def apply(columns: Columns, rows: int) -> None:
            hashes = hashes_of(columns[first].data)
            for name in others:
                hashes = hash_counters(hashes, hashes_of(columns[name].data))
            ids = bucket_ids(hashes, self.num_buckets)
            for name in self.columns:
                nulls = null_mask(columns[name])
                if nulls is not None:
                    ids[nulls] = NULL
            columns[self.output] = Values(ids)

        return apply

    def polars(self, state: Tables, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Add the crossed column as bucket ids, in Arrow memory."""
        crossed = pl.map_batches(self.columns, self._crossed, return_dtype=pl.Int32())
        return frame.with_columns(crossed.alias(self.output))

    def _crossed(self, columns: Sequence[pl.Series]) -> pl.Series:
        first, *others = (column.to_arrow() for column in columns)
        hashes, nulls = hash_values(first), missing(first)
        for values in others:
            hashes = hash_counters(hashes, hash_values(values))
            nulls |= missing(values)
        ids = bucket_ids(hashes, self.num_buckets)
        ids[nulls] = NULL
        return pl.Series(ids)
