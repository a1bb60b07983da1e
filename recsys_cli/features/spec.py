"""What a plan knows of a column before any row is read: enough to check ops, and to describe what will be written."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class Spec:
    """A column at one point of a plan.

    Attributes:
        type: Arrow type of the values between ops; a list type where each row holds a list.
        categorical: Whether they are encoded ids.
        vocabulary: Name of the vocabulary that the ids come from; None where they come from a hash or from boundaries.
        cardinality: Rows of the embedding table; None for numbers, and for a vocabulary that is not learnt yet.
        buckets: How many of those rows, the last ones, stand for values that train did not have.
        dtype: Type to write, where an op has decided it; None for the usual one (float32, int32 for ids).
        tags: What `AddTags` says of it.
        lengths: Shortest and longest list in train, where `ValueCount` has counted them.
    """

    type: pa.DataType
    categorical: bool = False
    vocabulary: str | None = None
    cardinality: int | None = None
    buckets: int = 0
    dtype: str | None = None
    tags: tuple[str, ...] = ()
    lengths: tuple[int, int] | None = None

    @property
    def ragged(self) -> bool:
        """Whether each row holds a list."""
        return is_list(self.type)

    @property
    def element(self) -> pa.DataType:
        """Type of the values (of a list's elements), texts and dictionaries of texts both as text."""
        kind = self.type.value_type if self.ragged else self.type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        return pa.string() if pa.types.is_large_string(kind) else kind

    @property
    def is_number(self) -> bool:
        """Whether an op can calculate with the values: numbers and truth values that are not ids."""
        kind = self.element
        number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        return not self.categorical and (number or pa.types.is_boolean(kind) or pa.types.is_null(kind))

    def holding(self, kind: pa.DataType) -> pa.DataType:
        """Return the type of a column that holds `kind` where this one holds its values: lists stay lists."""
        return pa.list_(kind) if self.ragged else kind


def is_list(kind: pa.DataType) -> bool:
    """Whether a type holds a list in each row, of any kind that Arrow has."""
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def is_text(kind: pa.DataType) -> bool:
    """Whether a type holds texts or bytes, however they are stored; a dictionary of them does not count."""
    types = pa.types
    plain = types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind)
    return plain or str(kind) in {"string_view", "binary_view"}
