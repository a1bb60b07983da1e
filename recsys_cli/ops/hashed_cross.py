"""A hashed feature cross."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import Field

from recsys_cli.features.schema import FIRST
from recsys_cli.features.spec import Spec
from recsys_cli.ops.fields import Names
from recsys_cli.ops.hash_bucket import Buckets, hashable
from recsys_cli.ops.op import Op, scalars


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
