"""A slice of each list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from recsys_cli.errors import ConfigError
from recsys_cli.features.spec import Spec
from recsys_cli.ops.op import Names, Op, Tables, lists
from recsys_cli.ops.values import Apply, Array, Types, Values, element, mapped, retype, sliced
from recsys_cli.packages import np, pa


class ListSlice(Op):
    """Slice lists, such as to the last ten items of a session, and optionally pad them to one length.

    `list[start:end]` as in Python, negative positions from the end. A positive `start` alone takes the first `start`
    elements, as in NVTabular; a negative one alone takes the last. Shorter lists keep their elements; `pad` appends
    `pad_value`.
    Nulls: a null list becomes an empty one; null elements stay and count.
    Fitted: nothing.
    Output: lists of the same type, named as the input; only numbers and ids can be padded.
    """

    columnwise: ClassVar[bool] = True

    op: Literal["ListSlice"] = "ListSlice"
    columns: Annotated[Names, Field(min_length=1)]
    """List columns."""
    start: int
    """First position; without `end`, a positive `start` is the number of elements."""
    end: int | None = None
    """Position after the last element."""
    pad: bool = False
    """Pad all lists to the same length."""
    pad_value: int | float = Field(0, allow_inf_nan=False)
    """Padding value; 0 is the id of padding."""

    @model_validator(mode="after")
    def _takes_something(self) -> Self:
        first, last = self.bounds
        if last is not None and (first < 0) == (last < 0) and last <= first:
            raise ValueError(f"the slice from {first} to {last} is empty")
        if self.pad and self.size is None:
            raise ValueError("pad needs a fixed length; set start alone, or start and end of one sign")
        return self

    @property
    def bounds(self) -> tuple[int, int | None]:
        """Start and end of the slice, as in Python."""
        return (0, self.start) if self.start > 0 and self.end is None else (self.start, self.end)

    @property
    def size(self) -> int | None:
        """Maximum number of elements; None if it depends on the list."""
        first, last = self.bounds
        if last is None:
            return -first if first < 0 else None
        return last - first if (first < 0) == (last < 0) else None

    def length(self, length: int) -> int:
        """Return the output length for an input length."""
        if self.pad and self.size is not None:
            return self.size
        return len(range(length)[slice(*self.bounds)])

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the specs of the slices; a `ConfigError` for single values and for lists that cannot be padded."""
        specs: dict[str, Spec | None] = {}
        for name, spec in lists(inputs).items():
            if self.pad:
                self._check_padding(name, spec)
            lengths = (self.length(spec.lengths[0]), self.length(spec.lengths[1])) if spec.lengths else None
            if self.pad:
                lengths = (self.length(0), self.length(0))
            specs[name] = replace(spec, type=spec.holding(spec.element), lengths=lengths)
        return specs

    def _check_padding(self, name: str, spec: Spec) -> None:
        kind = spec.element
        if not pa.types.is_integer(kind) and not pa.types.is_floating(kind):
            raise ConfigError(f"{name!r} holds lists of {kind}; only numbers and ids can be padded")
        if pa.types.is_integer(kind):
            try:
                pa.scalar(self.pad_value).cast(kind)
            except pa.ArrowInvalid as error:
                raise ConfigError(f"pad_value {self.pad_value} does not fit {name!r}, which holds {kind}") from error

    def numpy(self, state: Tables, types: Types) -> Apply:
        """Slice, and optionally pad, the lists."""
        for name in self.columns:
            retype(types, name, element(types[name]))
        return mapped(dict.fromkeys(self.columns, self._sliced))

    def _sliced(self, values: Values) -> Values:
        assert values.offsets is not None
        first, last = self.bounds
        lengths = np.diff(values.offsets)
        start = _clamped(first, lengths)
        sizes = np.maximum((lengths if last is None else _clamped(last, lengths)) - start, 0)
        cut = sliced(values, values.offsets[:-1] + start, sizes)
        return _padded(cut, sizes, self.size, self.pad_value) if self.pad and self.size is not None else cut


def _clamped(position: int, lengths: Array) -> Array:
    """Return list positions from the start, clamped to the lists."""
    return np.maximum(lengths + position, 0) if position < 0 else np.minimum(lengths, position)


def _padded(values: Values, sizes: Array, size: int, value: float) -> Values:
    rows = len(sizes)
    into = (np.arange(size) < sizes[:, None]).ravel()
    padded = np.full(rows * size, value).astype(values.data.dtype)
    padded[into] = values.data
    mask = None
    if values.nulls is not None:
        mask = np.zeros(rows * size, dtype=bool)
        mask[into] = values.nulls
    return Values(padded, mask, np.arange(rows + 1, dtype=np.int64) * size)
