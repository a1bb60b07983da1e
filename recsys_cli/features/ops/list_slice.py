"""ListSlice: a part of each list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import Field, model_validator

from recsys_cli.errors import ConfigError
from recsys_cli.features.ops.fields import Names
from recsys_cli.features.ops.op import Op, lists
from recsys_cli.features.spec import Spec


class ListSlice(Op):
    """Cut lists to a part of them, such as the last ten items of a session, and fill short ones up to the same length.

    Of each list the elements from `start` to before `end`, counted from 0, or from the end where negative: as
    `list[start:end]` in Python. With a positive `start` alone the first `start` elements (NVTabular's meaning), with a
    negative one alone the last. A list that has fewer gives what it has; with `pad`, `pad_value` is put behind, as often
    as it takes. A null list is an empty list. Null elements count, and stay
    what they are. An empty input stays empty.
    Nothing is fitted.
    Output: lists of the same elements (numbers, ids, texts) under the same name; only numbers and ids can be padded.
    """

    columnwise: ClassVar[bool] = True

    op: Literal["ListSlice"] = "ListSlice"
    columns: Annotated[Names, Field(min_length=1)]
    """Columns of lists to cut."""
    start: int
    """The first element to take; where it is positive and there is no `end`, how many to take."""
    end: int | None = None
    """The first element to leave out again."""
    pad: bool = False
    """Whether all lists become equally long."""
    pad_value: int | float = Field(0, allow_inf_nan=False)
    """What short lists are filled up with: 0 is the id of padding."""

    @model_validator(mode="after")
    def _takes_something(self) -> Self:
        first, last = self.bounds
        if last is not None and (first < 0) == (last < 0) and last <= first:
            raise ValueError(f"nothing is between {first} and {last}")
        if self.pad and self.size is None:
            raise ValueError("pad needs a start and an end that say how many elements there are")
        return self

    @property
    def bounds(self) -> tuple[int, int | None]:
        """From where to before where, as a slice in Python."""
        return (0, self.start) if self.start > 0 and self.end is None else (self.start, self.end)

    @property
    def size(self) -> int | None:
        """How many elements it takes of a long list; None where that depends on the list."""
        first, last = self.bounds
        if last is None:
            return -first if first < 0 else None
        return last - first if (first < 0) == (last < 0) else None

    def length(self, length: int) -> int:
        """Return how long a list of a length becomes."""
        if self.pad and self.size is not None:
            return self.size
        return len(range(length)[slice(*self.bounds)])

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Describe the shorter lists.

        Raises:
            ConfigError: A column holds no lists, or lists that cannot be padded.
        """
        found: dict[str, Spec | None] = {}
        for name, spec in lists(inputs).items():
            if self.pad:
                self._check_padding(name, spec)
            lengths = (self.length(spec.lengths[0]), self.length(spec.lengths[1])) if spec.lengths else None
            if self.pad:
                lengths = (self.length(0), self.length(0))
            found[name] = replace(spec, type=spec.holding(spec.element), lengths=lengths)
        return found

    def _check_padding(self, name: str, spec: Spec) -> None:
        kind = spec.element
        if not pa.types.is_integer(kind) and not pa.types.is_floating(kind):
            raise ConfigError(f"{name!r} holds lists of {kind}; only numbers and ids can be padded")
        if pa.types.is_integer(kind):
            try:
                pa.scalar(self.pad_value).cast(kind)
            except pa.ArrowInvalid as error:
                raise ConfigError(f"{name!r} holds {kind}, which {self.pad_value} is not") from error
