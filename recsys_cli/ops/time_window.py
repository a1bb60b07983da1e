"""Interactions of a period."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, field_validator, model_validator

from recsys_cli.features.spec import Spec
from recsys_cli.ops.flow import Flow, Mask, OpContext, filter_rows
from recsys_cli.ops.op import RowFilter, numbers, scalars
from recsys_cli.packages import np, pa

_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")


def _as_text(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime.date) else value


Moment = Annotated[int | float | str | None, BeforeValidator(_as_text)]


class TimeWindow(RowFilter):
    """Keep the interactions of a period: from `after`, before `before`, and within the `last` duration.

    A bound is a number of seconds since 1970-01-01 UTC or an ISO date such as `2019-03-01` or `2019-03-01T12:00:00+02:00`,
    UTC if it has no zone. A numeric column holds seconds, ms, µs or ns since 1970, by its first rows or `times` of the
    table; other numbers have a unit of their own, shared by the bounds. Text is parsed as times; dates and timestamps
    compare in their own unit. `after` is inclusive, `before` exclusive. `last` counts back from the newest row of the rest
    of the window, and excludes a row older by exactly that duration. With split.method=files each split has its own
    newest row. Rows are dropped before the split.
    Nulls: rows with a null or NaN time are dropped.
    Fitted: nothing.
    Output: fewer rows; no column changes.
    """

    op: Literal["TimeWindow"] = "TimeWindow"
    column: str
    """Time column."""
    after: Moment = None
    """Start, inclusive."""
    before: Moment = None
    """End, exclusive."""
    last: str | None = None
    """Duration before the newest row, such as `90d`: a number and one of s, m, h, d, w."""

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
            raise ValueError(f"{value!r} is no duration; write a number and one of s, m, h, d, w, such as 90d")
        return value

    @model_validator(mode="after")
    def _is_window(self) -> TimeWindow:
        if self.after is None and self.before is None and self.last is None:
            raise ValueError("set after, before or last")
        if self.first is not None and self.end is not None and self.first >= self.end:
            raise ValueError(f"the window is empty: after {self.after} is not earlier than before {self.before}")
        return self

    @property
    def title(self) -> str:
        """Name in messages."""
        bounds = {"after": self.after, "before": self.before, "last": self.last}
        return f"{self.name} {', '.join(f'{name} {value}' for name, value in bounds.items() if value is not None)}"

    @property
    def reads(self) -> tuple[str, ...]:
        """The time column."""
        return (self.column,)

    @property
    def times(self) -> tuple[str, ...]:
        """The time column."""
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
        match = _DURATION.fullmatch(self.last or "")
        return Fraction(match[1]) * _SECONDS[match[2]] if match else None

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Refuse other columns than times and numbers; no column changes."""
        kind = scalars(inputs)[self.column].type
        if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
            numbers(inputs)
        return {}

    @property
    def row_wise(self) -> bool:
        """Whether the window does not end at the newest row."""
        return self.length is None

    def choose(self, rows: Flow, context: OpContext) -> Flow:
        """Keep the rows of the window, by exact bounds in the unit of the column."""
        unit = _per_second(rows.schema().field(self.column).type)
        first = None if self.first is None else self.first * unit
        end = None if self.end is None else self.end * unit
        window = _Window(first, end)
        if self.length is None:
            return filter_rows(rows, partial(_keep, self.column, window), context.keeps)
        rows = context.materialize(rows)
        newest = _newest(rows, self.column, window)
        after = None if newest is None else newest - self.length * unit
        return filter_rows(rows, partial(_keep, self.column, _Window(first, end, after)), context.keeps)


def _seconds(value: int | float | str) -> Fraction:
    if not isinstance(value, str):
        return Fraction(value)
    try:
        moment = datetime.datetime.fromisoformat(value)
    except ValueError as error:
        raise ValueError(
            f"{value!r} is no time; write a number of seconds or an ISO date such as 2019-03-01"
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    since = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return Fraction(since // datetime.timedelta(microseconds=1), 1_000_000)


@dataclass(frozen=True)
class _Window:
    """Bounds in the unit of the column: time >= first, time < end, time > after; None for no bound."""

    first: Fraction | None
    end: Fraction | None
    after: Fraction | None = None

    def contains(self, times: np.ndarray) -> Mask:
        """Return a mask of the times inside; False for NaN."""
        inside = ~np.isnan(times) if times.dtype.kind == "f" else np.ones(len(times), dtype=bool)
        whole = times.dtype.kind == "i"
        with np.errstate(invalid="ignore"):
            if self.first is not None:
                inside &= times >= (_whole(math.ceil(self.first)) if whole else float(self.first))
            if self.end is not None:
                inside &= times < (_whole(math.ceil(self.end)) if whole else float(self.end))
            if self.after is not None:
                inside &= times > (_whole(math.floor(self.after)) if whole else float(self.after))
        return inside


def _whole(bound: int) -> int:
    return max(-(2**63), min(2**63 - 1, bound))


def _per_second(kind: pa.DataType) -> Fraction:
    if pa.types.is_timestamp(kind):
        return Fraction(_TICKS[kind.unit])
    if pa.types.is_date32(kind):
        return Fraction(1, 86400)
    return Fraction(_TICKS["ms"] if pa.types.is_date64(kind) else 1)


def _times(values: pa.ChunkedArray) -> tuple[np.ndarray, Mask]:
    """Return times (int64, or float64 for other numeric types) and the mask of valid ones."""
    kind = values.type
    valid = values.is_valid().to_numpy()
    if pa.types.is_date32(kind):
        values = values.cast(pa.int32())
    elif pa.types.is_timestamp(kind) or pa.types.is_date64(kind):
        values = values.cast(pa.int64())
    elif not pa.types.is_integer(kind) or kind == pa.uint64():
        values = values.cast(pa.float64())
    zero = pa.scalar(0, values.type)
    times = values.fill_null(zero).to_numpy()
    return (times if times.dtype == np.float64 else times.astype(np.int64)), valid


def _keep(column: str, window: _Window, batch: pa.Table) -> Mask:
    times, valid = _times(batch.column(column))
    return valid & window.contains(times)


def _newest(rows: Flow, column: str, window: _Window) -> Fraction | None:
    newest: Fraction | None = None
    for batch in rows.batches([column]):
        times, valid = _times(batch.column(column))
        times = times[valid & window.contains(times) & np.isfinite(times)]
        if len(times):
            latest = Fraction(times.max().item())
            newest = latest if newest is None else max(newest, latest)
    return newest
