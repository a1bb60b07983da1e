"""Static type of a column, for the checks of ops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class Spec:
    """Column at one point of a plan.

    Attributes:
        type: Arrow type of the values between ops; a list type for lists.
        vocabulary: Name of the vocabulary; None for ids from a hash or from boundaries.
        cardinality: Rows of the embedding table; None for numbers and before fitting.
        buckets: Number of hash buckets for unseen values.
        dtype: Stored type, if set by an op; None for the default (float32, int32 for ids).
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
        """Whether rows hold lists."""
        return is_list(self.type)

    @property
    def element(self) -> pa.DataType:
        """Type of the values or list elements; text and dictionaries of text are string."""
        kind = self.type.value_type if self.ragged else self.type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        return pa.string() if pa.types.is_large_string(kind) else kind

    @property
    def is_number(self) -> bool:
        """Whether the values are numbers or booleans, but no ids."""
        kind = self.element
        number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        return not self.categorical and (number or pa.types.is_boolean(kind) or pa.types.is_null(kind))

    def computed(self, kind: pa.DataType, **changes: Any) -> Spec:
        """Return the spec of values of type `kind` computed one for one; lists, tags and list lengths stay."""
        return Spec(self.holding(kind), tags=self.tags, lengths=self.lengths, **changes)

    def holding(self, kind: pa.DataType) -> pa.DataType:
        """Return the Arrow type of a column with elements of type `kind`; lists stay lists."""
        return pa.list_(kind) if self.ragged else kind


def is_list(kind: pa.DataType) -> bool:
    """Whether a type is any Arrow list type."""
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is text or bytes in any encoding, except a dictionary."""
    types = pa.types
    plain = types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind)
    return plain or str(kind) in {"string_view", "binary_view"}
