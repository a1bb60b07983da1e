"""HashedCross: how columns go together, as one column of a fixed number of ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import Field

from recsys_cli.features.ops.fields import Names
from recsys_cli.features.ops.hash_bucket import Buckets, hashable
from recsys_cli.features.ops.op import Op, scalars
from recsys_cli.features.schema import FIRST
from recsys_cli.features.spec import Spec


class HashedCross(Op):
    """Make one column of the combinations of several, such as city and device, by a hash of the values together.

    A row becomes 3 + bucket. The hashes of the values (see HashBucket) are folded in the order of the columns, so (a, b) is
    another combination than (b, a); the result's upper half is scaled down to the number of buckets. Different combinations
    may share an id. A row with a null or NaN in any of the columns becomes 1; 0 and 2 never come out.
    Encoded ids are hashed as the numbers they are, those of null and unseen as well.
    Nothing is fitted: unseen combinations are combinations as all others, and so are those of constant columns and of one
    row; empty input stays empty. Columns of lists are refused.
    Output: int32, named by the columns with "_X_" between. Its cardinality is 3 + the number of buckets.
    """

    op: Literal["HashedCross"] = "HashedCross"
    columns: Annotated[Names, Field(min_length=2)]
    """Columns to combine, in order."""
    num_buckets: Buckets
    """How many ids."""

    @property
    def output(self) -> str:
        """Name of the new column."""
        return "_X_".join(self.columns)

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Describe the column of ids.

        Raises:
            ConfigError: A column holds lists, or values that cannot be hashed.
        """
        hashable(scalars(inputs))
        return {self.output: Spec(pa.int32(), categorical=True, dtype="int32", cardinality=FIRST + self.num_buckets)}
