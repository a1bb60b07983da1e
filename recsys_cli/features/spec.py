"""Static type of a column, for the checks of ops."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from recsys_cli.packages import pa

_WRONG = (TypeError, ValueError, OverflowError)
_NOISE = re.compile(r"^\s+|(\.0*)?\s*$")
"""Text around a whole number that does not change it."""


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


def cast_ids(raw: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return raw ids in the type of their column, null for those that no row can have.

    The integer id 42 may be "042", " 42", "42.0" or 42.0; the text "42" may be 42. Booleans are no ids.
    """
    with suppress(pa.ArrowException, *_WRONG):
        return _cast_ids(pa.array(raw), kind)
    return pa.concat_arrays([_cast_id(value, kind) for value in raw]) if len(raw) else pa.array([], kind)


def _cast_ids(ids: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_boolean(ids.type) and not pa.types.is_boolean(kind):
        return pa.nulls(len(ids), kind)
    if pa.types.is_floating(ids.type) and is_text(kind):
        ids = ids.cast(pa.int64())
    return ids.cast(kind)


def _cast_id(value: Any, kind: pa.DataType) -> pa.Array:
    with suppress(pa.ArrowException, *_WRONG):
        is_number = pa.types.is_integer(kind) and isinstance(value, str)
        return _cast_ids(pa.array([_NOISE.sub("", value) if is_number else value]), kind)
    return pa.nulls(1, kind)
