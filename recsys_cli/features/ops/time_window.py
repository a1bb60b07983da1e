"""TimeWindow: keep the interactions of some span of time."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa
from pydantic import BeforeValidator, field_validator, model_validator

from recsys_cli.features.ops.op import Op, Phase, numbers, scalars
from recsys_cli.features.spec import Spec

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")


def _as_text(value: Any) -> Any:
    """Return a date that YAML has read as one as the text that it was."""
    return value.isoformat() if isinstance(value, datetime.date) else value


Moment = Annotated[int | float | str | None, BeforeValidator(_as_text)]


class TimeWindow(Op):
    """Keep the interactions of some span of time: from `after` on, before `before`, and of those the `last` so long.

    A time is a number of seconds since 1970-01-01 UTC or an ISO date such as `2019-03-01` or `2019-03-01T12:00:00+02:00`;
    without a zone it is UTC. A column of numbers holds such seconds, or ms, µs or ns since 1970, as its first rows or `times` of
    the table say; all others have a unit of their own, and so have the bounds then. Texts are read as times, see `times` of a
    table; dates and timestamps are compared by their own unit. `after` itself is inside, `before` itself is not; of `last` the
    newest row is inside, and one that is older by exactly that much is not. The newest row is the newest of those in
    the rest of the window, over the whole input, or with split.method=files over each given set of files on its own.
    A null or NaN has no time and is left out; so an empty or all-null input gives no row. Rows are chosen before the split
    and before everything that is fitted. Nothing is fitted. No column changes.
    """

    phase: ClassVar[Phase] = "rows"
    drops_only: ClassVar[bool] = True

    op: Literal["TimeWindow"] = "TimeWindow"
    column: str
    """The column with the time of the interaction."""
    after: Moment = None
    """First time that is kept."""
    before: Moment = None
    """First time that is no longer kept."""
    last: str | None = None
    """How long before the newest, such as `90d`: a number and one of s, m, h, d, w."""

    @field_validator("after", "before")
    @classmethod
    def _is_time(cls, value: int | float | str | None) -> int | float | str | None:
        if isinstance(value, str):
            _seconds(value)
        return value

    @field_validator("last")
    @classmethod
    def _is_duration(cls, value: str | None) -> str | None:
        if value is not None and not _DURATION.fullmatch(value):
            raise ValueError(f"{value!r} is no length of time; it is a number and one of s, m, h, d, w, such as 90d")
        return value

    @model_validator(mode="after")
    def _is_window(self) -> TimeWindow:
        if self.after is None and self.before is None and self.last is None:
            raise ValueError("it needs after, before or last")
        if self.first is not None and self.end is not None and self.first >= self.end:
            raise ValueError(f"no time is after {self.after} and before {self.before}")
        return self

    @property
    def title(self) -> str:
        """How a message names it."""
        given = {"after": self.after, "before": self.before, "last": self.last}
        return f"{self.name} {', '.join(f'{name} {value}' for name, value in given.items() if value is not None)}"

    @property
    def reads(self) -> tuple[str, ...]:
        """The time."""
        return (self.column,)

    @property
    def times(self) -> tuple[str, ...]:
        """The time."""
        return (self.column,)

    @property
    def first(self) -> Fraction | None:
        """`after` in seconds."""
        return None if self.after is None else _seconds(self.after)

    @property
    def end(self) -> Fraction | None:
        """`before` in seconds."""
        return None if self.before is None else _seconds(self.before)

    @property
    def length(self) -> Fraction | None:
        """`last` in seconds."""
        found = _DURATION.fullmatch(self.last or "")
        return Fraction(found[1]) * _SECONDS[found[2]] if found else None

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Check the column: rows are left out, and no column changes.

        Raises:
            ConfigError: It holds no times.
        """
        kind = scalars(inputs)[self.column].type
        if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
            numbers(inputs)
        return {}


def _seconds(value: int | float | str) -> Fraction:
    if not isinstance(value, str):
        return Fraction(value)
    try:
        moment = datetime.datetime.fromisoformat(value)
    except ValueError as error:
        raise ValueError(
            f"{value!r} is no time; it is a number of seconds or an ISO date such as 2019-03-01"
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    since = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return Fraction(since // datetime.timedelta(microseconds=1), 1_000_000)
