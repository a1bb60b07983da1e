"""The table of feedback for the next training: CSV with columns of user, item, label, time and event."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from recsys_cli.errors import ConfigError
from recsys_cli.serving.feedback.event import Event
from recsys_cli.serving.feedback.state import FeedbackState
from recsys_cli.workspace.writing import replacing

_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_ISO = "%Y-%m-%d %H:%M:%S"
_EXACT = 2.0**53


@dataclass(frozen=True)
class TableForm:
    """Columns and units of the table.

    Attributes:
        columns: Names of the columns of user, item, label, time and event; empty names of the last three leave them out, and so do
            four names the event.
        like: Label of likes without a label, in a table without labels the event of those without an event; None for neither.
        time_unit: Unit of the times since 1970, "iso", or a format of `datetime.strftime`.

    Raises:
        ConfigError: A name is missing, one name is on two columns, `like` is no finite label, or the unit is unknown.
    """

    columns: Sequence[str] = ("user", "item", "label", "time")
    like: float | str | None = None
    time_unit: str = "s"

    def __post_init__(self) -> None:
        """Check the columns, the label of likes, and the unit."""
        names = list(filter(None, self.columns))
        if len(self.columns) not in {4, 5} or not all(self.columns[:2]) or len(set(names)) != len(names):
            raise ConfigError(
                f"--columns {','.join(self.columns)}: not the columns of user, item, label, time and event",
                hint="--columns userId,movieId,rating,timestamp, or user_id,item_id,,time,event with events and without labels",
            )
        if self.columns[2] and self.like is not None and self.label_of_likes is None:
            raise ConfigError(f"--like {self.like}: no finite number", hint="--like 5 for ratings")
        if self.time_unit not in {*_TICKS, "iso"} and "%" not in self.time_unit:
            raise ConfigError(
                f"--time-unit {self.time_unit}: unknown", hint=f"{', '.join(_TICKS)}, iso, or a format such as %d.%m.%Y"
            )

    @property
    def label_of_likes(self) -> float | None:
        """`like` as a label; None if it is no finite number."""
        with suppress(TypeError, ValueError):
            return number if math.isfinite(number := float(self.like or "")) else None
        return None


def write_table(path: Path, state: FeedbackState, form: TableForm) -> int:
    """Write the live feedback in order of time, and return the number of rows.

    Raises:
        ConfigError: The log has likes without the label or the event of a column, and `like` is None; or the log has events
            and the table has none.
    """
    events = sorted((event for event in state.live() if event.kind == "put"), key=Event.order)
    _check(events, form)
    with replacing(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(filter(None, form.columns))
        for event in events:
            values = (event.user, event.item, _label(event, form), _time(event, form), _event(event, form))
            writer.writerow(value for value, name in zip(values, form.columns, strict=False) if name)
    return len(events)


def _check(events: Sequence[Event], form: TableForm) -> None:
    label, event = form.columns[2], "".join(form.columns[4:])
    if (number := sum(one.label is None for one in events)) and form.like is None and label:
        raise ConfigError(
            f"{number:,} likes have no label for the column {label}",
            hint="give their label with --like, such as --like 5 for ratings or --like 1 for a binary label",
        )
    if (number := sum(one.event is None for one in events)) and form.like is None and event:
        raise ConfigError(
            f"{number:,} likes have no event for the column {event}",
            hint="give their event with --like, such as --like view",
        )
    if (number := sum(one.event is not None for one in events)) and len(form.columns) == 4:
        raise ConfigError(
            f"{number:,} rows have an event, and --columns has no column for it",
            hint="name it after the time: --columns user_id,item_id,,time,event; an empty name leaves it out: time,",
        )


def _label(event: Event, form: TableForm) -> float | None:
    """Return the label; whole numbers as integers."""
    label = form.label_of_likes if event.label is None else event.label
    return int(label) if label is not None and abs(label) < _EXACT and label == int(label) else label


def _event(event: Event, form: TableForm) -> str | None:
    """Return the event; of a like in a table without labels that of the form."""
    return str(form.like) if event.event is None and not form.columns[2] else event.event


def _time(event: Event, form: TableForm) -> int | str:
    """Return the time in whole units, seconds rounded down, or as text in UTC."""
    seconds, part = divmod(event.order()[0], 1)
    if (ticks := _TICKS.get(form.time_unit)) is None:
        moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=int(part * 1e6))
        return moment.strftime(_ISO if form.time_unit == "iso" else form.time_unit)
    return int(seconds) * ticks + (round(part * ticks) if ticks > 1 else 0)
