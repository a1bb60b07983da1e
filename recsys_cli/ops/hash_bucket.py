"""Hash buckets of values, and of combinations of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from recsys_cli.errors import ConfigError
from recsys_cli.features.hashing import can_hash, hash_counters, hash_values
from recsys_cli.features.schema import FIRST, NULL
from recsys_cli.features.spec import Spec
from recsys_cli.ops.categorify import MAX_BUCKETS
from recsys_cli.ops.op import FrozenDict, Names, Op, Tables, scalars
from recsys_cli.ops.values import Apply, Columns, Types, Values, canonical, hashes_of, mapped, null_mask, retype
from recsys_cli.ops.vocabulary import Ids, bucket_ids, encode_column
from recsys_cli.packages import np, npt, pa, pl

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

    def numpy(self, state: Tables, types: Types) -> Apply:
        """Replace values by bucket ids."""
        for name in self.columns:
            retype(types, name, pa.int32())
        return mapped({name: partial(_encoded, self.buckets_of(name)) for name in self.columns})

    def polars(self, state: Tables, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Replace values by bucket ids, in Arrow memory."""
        return frame.with_columns(
            encode_column(name, frame, partial(hashed_ids, num_buckets=self.buckets_of(name))) for name in self.columns
        )

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the specs of the ids."""
        return {
            name: spec.computed(pa.int32(), categorical=True, dtype="int32", cardinality=FIRST + self.buckets_of(name))
            for name, spec in hashable(inputs).items()
        }


def _encoded(num_buckets: int, values: Values) -> Values:
    ids = bucket_ids(hashes_of(values.data), num_buckets)
    nulls = null_mask(values)
    if nulls is not None:
        ids[nulls] = NULL
    return values.with_data(ids)


def hashed_ids(values: pa.Array, num_buckets: int) -> Ids:
    """Return the id of the hash bucket of each Arrow value; NULL for null and NaN."""
    ids = bucket_ids(hash_values(values), num_buckets)
    ids[missing(values)] = NULL
    return ids


def missing(values: pa.Array) -> npt.NDArray[np.bool_]:
    """Return the mask of null and NaN of Arrow values."""
    if isinstance(values, pa.DictionaryArray):
        values = values.dictionary_decode()
    return np.array(canonical(values).is_null().to_numpy(zero_copy_only=False), dtype=bool)


def hashable(inputs: Mapping[str, Spec]) -> Mapping[str, Spec]:
    """Return the columns; a `ConfigError` if a type has no hash."""
    for name, spec in inputs.items():
        if not can_hash(spec.element):
            raise ConfigError(f"{name!r} holds {spec.element}, which cannot be hashed; numbers, texts and times can")
    return inputs


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
