"""The table of feedback for the next training: user, item, label, time and event, in the format of the other interactions."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from recsys_cli.data.raw_files import unpacked_name
from recsys_cli.data.source import RUNS, RawTable
from recsys_cli.errors import ConfigError, LockedError, MissingArtifactError
from recsys_cli.serving.feedback.log import (
    compacted_file,
    current_files,
    exclusive,
    generation,
    outdated_files,
    replay,
)
from recsys_cli.serving.feedback.state import COMMIT, Event, FeedbackState
from recsys_cli.workspace.files import replacing

_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_ISO = "%Y-%m-%d %H:%M:%S"
_EXACT = 2.0**53
_CSV = RawTable("interactions", ())
_OWN_COLUMNS = "write CSV with --columns, and make it a table like the others yourself"


@dataclass(frozen=True)
class TableForm:
    """Columns and units of the table.

    Attributes:
        columns: Names of the columns of user, item, label, time and event; empty names of the last three leave them out, and so do
            four names the event.
        like: Label of likes without a label, in a table without labels the event of those without an event; None for neither.
        time_unit: Unit of the times since 1970, "iso", or a format of `datetime.strftime`.
        table: Format and dialect.
        schema: All columns of the other interactions, null where feedback has no value; None for `columns`.
        counts: Columns of the schema with the number of interactions of a row, here 1.
        empty: Columns without feedback that filters of the config read, each with its filter.

    Raises:
        ConfigError: A name is missing, one name is on two columns, `like` is no finite label, or the unit is unknown.
    """

    columns: Sequence[str] = ("user", "item", "label", "time")
    like: float | str | None = None
    time_unit: str = "s"
    table: RawTable = _CSV
    schema: pa.Schema | None = None
    counts: Sequence[str] = ()
    empty: Sequence[str] = ()

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
    def file(self) -> str:
        """Name of the file, with the suffix of the other interactions."""
        suffixes = [Path(unpacked_name(file.name)).suffix for file in self.table.files[:1]]
        return f"interactions{''.join(suffixes) or '.csv'}"

    @property
    def label_of_likes(self) -> float | None:
        """`like` as a label; None if it is no finite number."""
        with suppress(TypeError, ValueError):
            return number if math.isfinite(number := float(self.like or "")) else None
        return None


def write_table(path: Path, state: FeedbackState, form: TableForm) -> tuple[int, int]:
    """Write the live feedback in order of time; a table without labels takes no labels of 0 or less, since its rows are positive.

    Returns:
        The number of rows, and that of the events left out.

    Raises:
        ConfigError: The log has likes without the label or the event of a column, and `like` is None; or the log has events
            and the table has none; or a value does not fit its column.
    """
    live = sorted((event for event in state.live() if event.kind == "put"), key=Event.order)
    events = [event for event in live if form.columns[2] or event.label is None or event.label > 0]
    _check(events, form)
    parts = (
        [event.user for event in events],
        [event.item for event in events],
        *([value(event, form) for event in events] for value in (_label, _time, _event)),
    )
    given: dict[str, Sequence[Any]] = dict.fromkeys(form.counts, [1] * len(events))
    given |= {
        name: part for name, part in zip(form.columns, parts, strict=False) if name
    }  # an empty name leaves it out
    names = list(given) if form.schema is None else form.schema.names
    columns = {name: given.get(name, [None] * len(events)) for name in names}
    with replacing(path) as partial:
        if form.table.format == "parquet":
            pq.write_table(_arrow(columns, form.schema), partial)
        else:
            lines = _objects(columns, form.schema) if form.table.format == "jsonl" else _text(columns, form.table)
            partial.write_text("".join(f"{line}\n" for line in lines), form.table.encoding, newline="")
    return len(events), len(live) - len(events)


def _arrow(columns: Mapping[str, Sequence[Any]], schema: pa.Schema | None) -> pa.Table:
    """Return columns in the types of a schema, without its dictionaries."""
    arrays = {}
    for name, values in columns.items():
        kind = pa.null() if schema is None else schema.field(name).type
        own = kind.value_type if hasattr(kind, "value_type") else kind
        is_mixed = any(isinstance(value, str) for value in values)
        texts = [str(value) if is_mixed and value is not None else value for value in values]
        try:
            array = pa.array(texts).cast(own)
        except (pa.ArrowException, OverflowError) as error:
            raise ConfigError(f"a value of the feedback is no {own} for {name}: {error}", hint=_OWN_COLUMNS) from error
        is_list = isinstance(kind, pa.ListType | pa.LargeListType)
        arrays[name] = pa.array([[one] for one in array.to_pylist()], kind) if is_list else array
    return pa.table(arrays)


def _objects(columns: Mapping[str, Sequence[Any]], schema: pa.Schema) -> Iterable[str]:
    """Return a line of JSON for each row; a list column has lists of one."""
    for name in columns:
        if isinstance(schema.field(name).type, pa.ListType):
            columns = {**columns, name: [[value] for value in columns[name]]}
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    return (json.dumps({name: value for name, value in row.items() if value is not None}) for row in rows)


def _text(columns: Mapping[str, Sequence[Any]], table: RawTable) -> Iterable[str]:
    """Return the header, if the table has one, and a line for each row in the dialect of a table."""
    is_spaced, quote = table.separator == RUNS, table.quote or ""
    separator, missing = (" ", "NA") if is_spaced else (table.separator, "")
    special = {separator, quote, "\n", "\r"} - {""}

    def field(value: Any) -> str:
        if not isinstance(value, str):
            return missing if value is None else str(value).replace(".", table.decimal)
        is_plain = value not in table.nulls and not any(part in value for part in special)
        return value if is_plain else f"{quote}{value.replace(quote, 2 * quote) if quote else value}{quote}"

    rows = zip(*columns.values(), strict=True)
    return (separator.join(map(field, row)) for row in ([tuple(columns)] if table.header else []) + list(rows))


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


@dataclass(frozen=True)
class Compacted:
    """Result of a compaction.

    Attributes:
        table: The written table.
        rows: Its number of rows.
        removed: Number of events removed from the log: deleted and overwritten ones; None while a server writes the log.
        damaged: Number of damaged lines, which were skipped.
        disliked: Number of events left out of a table without labels: those with a label of 0 or less.
    """

    table: Path
    rows: int
    removed: int | None
    damaged: int
    disliked: int


def compact(folder: Path, form: TableForm | None = None) -> Compacted:
    """Write the table of interactions, and rewrite the logs unless a server writes them.

    Raises:
        MissingArtifactError: The folder does not exist.
        ConfigError: Likes have no label; the logs stay as they are.
    """
    if not folder.is_dir():
        raise MissingArtifactError(f"{folder} does not exist", hint="name the folder of recsys serve --feedback")
    form = form or TableForm()
    with suppress(LockedError), exclusive(folder):
        return replace(_tabled(folder, form, is_live=False), removed=rewrite(folder))
    return _tabled(folder, form, is_live=True)


def _tabled(folder: Path, form: TableForm, *, is_live: bool) -> Compacted:
    """Write the table."""
    state, damaged = _replayed(folder, is_live=is_live)
    rows, disliked = write_table(folder / form.file, state, form)
    return Compacted(folder / form.file, rows, None, damaged, disliked)


def rewrite(folder: Path, *, drops: Callable[[Event], bool] | None = None) -> int:
    """Start a new generation with the live events only, and return the number of removed ones; the caller holds the folder's lock.

    Events that `drops` selects are left out, with all copies of damaged lines.
    """
    for path in outdated_files(folder):
        path.unlink()  # of an interrupted compaction
    state, damaged = _replayed(folder)
    live = [event for event in state.live() if drops is None or not drops(event)]
    removed = state.num_events - len(live)
    for path in folder.glob("*.damaged") if drops else ():
        path.unlink()
    if not removed and not (damaged and drops):
        return 0
    if damaged and not drops:
        for path in current_files(folder):
            path.with_suffix(".damaged").write_bytes(path.read_bytes())
    with replacing(compacted_file(folder, generation(folder) + 1)) as partial, partial.open("wb") as file:
        file.writelines(event.line() for event in live)
        file.write(COMMIT)
    for path in outdated_files(folder):
        path.unlink()
    return removed


def _replayed(folder: Path, *, is_live: bool = False) -> tuple[FeedbackState, int]:
    state = FeedbackState()
    damaged = sum(replay(path, state, is_live=is_live)[1] for path in current_files(folder))
    return state, damaged
