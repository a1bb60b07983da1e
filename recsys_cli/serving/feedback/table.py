"""The table of feedback for the next training: CSV with columns of user, item, label and time."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from recsys_cli.errors import ConfigError
from recsys_cli.serving.feedback.event import Event
from recsys_cli.serving.feedback.state import FeedbackState
from recsys_cli.workspace.writing import replacing

TimeUnit = Literal["s", "ms", "us", "ns"]
_EXACT = 2.0**53


@dataclass(frozen=True)
class TableForm:
    """Columns and units of the table.

    Attributes:
        columns: Names of the columns of user, item, label and time; an empty name leaves out the label or the time.
        like: Label of likes without a label; None for a table without them.
        time_unit: Unit of the times since 1970.

    Raises:
        ConfigError: A name is missing, one name is on two columns, or `like` is not finite.
    """

    columns: Sequence[str] = ("user", "item", "label", "time")
    like: float | None = None
    time_unit: TimeUnit = "s"

    def __post_init__(self) -> None:
        """Check the columns and the label of likes."""
        names = list(filter(None, self.columns))
        if len(self.columns) != 4 or not all(self.columns[:2]) or len(set(names)) != len(names):
            raise ConfigError(
                f"--columns {','.join(self.columns)}: not the four columns of user, item, label and time",
                hint="--columns userId,movieId,rating,timestamp, or userId,movieId,,timestamp without a label",
            )
        if self.like is not None and not math.isfinite(self.like):
            raise ConfigError(f"--like {self.like}: no finite number", hint="--like 5 for ratings")


def write_table(path: Path, state: FeedbackState, form: TableForm) -> int:
    """Write the live feedback in order of time, and return the number of rows.

    Raises:
        ConfigError: The table has a label column, the log has likes without a label, and `like` is None.
    """
    events = sorted((event for event in state.live() if event.kind == "put"), key=lambda event: (event.time, event.at))
    _check_likes(events, form)
    with replacing(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(filter(None, form.columns))
        for event in events:
            values = (event.user, event.item, _label(event, form), _time(event, form))
            writer.writerow(value for value, name in zip(values, form.columns, strict=True) if name)
    return len(events)


def _check_likes(events: Sequence[Event], form: TableForm) -> None:
    number = sum(event.label is None for event in events)
    if number and form.like is None and form.columns[2]:
        raise ConfigError(
            f"{number:,} likes have no label for the column {form.columns[2]}",
            hint="give their label with --like, such as --like 5 for ratings or --like 1 for a binary label",
        )


def _label(event: Event, form: TableForm) -> float | None:
    """Return the label; whole numbers as integers."""
    label = form.like if event.label is None else event.label
    return int(label) if label is not None and abs(label) < _EXACT and label == int(label) else label


def _time(event: Event, form: TableForm) -> int:
    """Return the time in whole units, seconds rounded down."""
    seconds, part = divmod(event.time or 0.0, 1)
    ticks = 1_000 ** get_args(TimeUnit).index(form.time_unit)
    return int(seconds) * ticks + (round(part * ticks) if ticks > 1 else 0)
