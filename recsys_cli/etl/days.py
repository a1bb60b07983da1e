"""Facts of interactions by calendar day: the basis for judging whether new rows look like those before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from recsys_cli.config import RunConfig
from recsys_cli.errors import ConfigError, DataError
from recsys_cli.etl.calendar import DAY, KEPT, Day
from recsys_cli.etl.reading.reader import Inputs, Reader


@dataclass(frozen=True)
class NewInteractions:
    """Facts of new interactions.

    Attributes:
        days: By calendar day, in order, without late rows; of a first read the latest ten weeks.
        fresh: Number of rows later than the last time so far, or of all in a first read.
        late: Number of other new rows.
        last: Time of the last row in seconds since 1970; None without rows.
        total: Number of rows of the table.
    """

    days: tuple[Day, ...]
    fresh: int
    late: int
    last: float | None
    total: int

    @property
    def rows(self) -> int:
        """Number of new rows."""
        return self.fresh + self.late


def new_interactions(
    config: RunConfig, raw: Path, *, after: float | None = None, files: frozenset[str] | None = None, rows_before: int = 0,
    known: Mapping[str, pa.Array] | None = None,
) -> NewInteractions:  # fmt: skip
    """Read the facts of interactions later than a time; of new files the late ones count too.

    Args:
        config: The config.
        raw: Folder of the downloaded dataset.
        after: Seconds since 1970; None for all rows.
        files: Paths of the new files, if the others are unchanged; None to read all files.
        rows_before: Rows of the table before.
        known: Known raw values by role, `user` and `item`; None: a value is new on its first day.

    Raises:
        ConfigError: The plan has no time of the interactions.
        DataError: A row is unreadable, or a new file has other types.
    """
    plan, inputs = config.features, Inputs.of(config, raw)
    if len(inputs.interactions) != 1:
        raise ConfigError(
            "recsys update splits by time: it takes no split.method=files", hint="set dataset.interactions"
        )
    (reader,) = inputs.interactions.values()
    time = plan.timestamp and plan.raw_name(plan.timestamp)
    if time is None or time not in reader.schema().names:
        raise ConfigError("recsys update needs the time of each row", hint="set features.timestamp to a raw column")
    roles = {role: plan.raw_name(name) for role, name in (("user", plan.user), ("item", plan.item))}
    ids = frozenset(map(plan.raw_name, (*plan.categorified, *([plan.impression] if plan.impression else []))))
    columns = _Columns(time, roles, ids, None if known is None else {role: pl.Series(v) for role, v in known.items()})
    chosen = reader if files is None else _only(reader, files)
    joined = _joined([_summed(columns.prepared(rows), columns, after) for rows in chosen.batches()], columns)
    read, late = joined.total, joined.late
    if files is not None:
        return replace(joined, total=rows_before + read)
    return replace(joined, late=max(0, late - rows_before) if after is not None else 0)


def _only(reader: Reader, files: frozenset[str]) -> Reader:
    """Return a reader of new files alone, in the types of the whole table."""
    table = reader.table
    chosen = [at for at, file in enumerate(table.files) if str(file) in files]
    partitions = {name: values.take(pa.array(chosen)) for name, values in table.partitions.items()}
    own = replace(
        reader, table=replace(table, files=tuple(table.files[at] for at in chosen), partitions=partitions), rejected=[]
    )
    for name, kind in zip(reader.schema().names, reader.schema().types, strict=True):
        found = own.schema().field(name).type
        if found != kind and not own.is_empty():
            raise DataError(
                f"{own.table.files[0]}: column {name} is {found}, and {kind} in the files before",
                hint="correct the file, or set its type in dataset.interactions",
            )
    return own


@dataclass(frozen=True)
class _Columns:
    """The raw columns to sum; `known` values by role, or None."""

    time: str
    roles: Mapping[str, str]
    ids: frozenset[str]
    known: Mapping[str, pl.Series] | None

    def numbers(self, frame: pl.DataFrame) -> list[str]:
        others = {*self.ids, self.time, "seconds", "day"}
        return [name for name, kind in frame.schema.items() if kind.is_numeric() and name not in others]

    def prepared(self, rows: pa.Table) -> pl.DataFrame:
        """Return rows with their time in seconds and their day."""
        frame, seconds = pl.DataFrame(rows), pl.col(self.time)
        if frame.schema[self.time].is_temporal():
            seconds = seconds.cast(pl.Datetime("us")).dt.timestamp("us") / 1e6
        frame = frame.with_columns(seconds.cast(pl.Float64).alias("seconds"))
        return frame.with_columns((pl.col("seconds") // DAY).cast(pl.Int64).alias("day"))


@dataclass(frozen=True)
class _Part:
    """Sums of a batch; rows by day and value, and the first day of each value, by role."""

    days: pl.DataFrame
    values: Mapping[str, pl.DataFrame]
    firsts: Mapping[str, pl.DataFrame]
    rows: int
    late: int


def _summed(frame: pl.DataFrame, columns: _Columns, after: float | None) -> _Part:
    seconds = pl.col("seconds")
    fresh = frame if after is None else frame.filter((seconds > after).fill_null(value=True))
    names = columns.numbers(frame)
    numbers = {name: pl.col(name).cast(pl.Float64).fill_nan(None) for name in names}
    read = [name for name in frame.columns if name not in {"seconds", "day"}]
    days = fresh.group_by("day").agg(
        pl.len().cast(pl.Int64).alias("rows"),
        pl.col("seconds").max().alias("last"),
        *(pl.col(name).null_count().cast(pl.Int64).alias(f"nulls/{name}") for name in read),
        *(one.count().cast(pl.Int64).alias(f"count/{name}") for name, one in numbers.items()),
        *(one.sum().alias(f"sum/{name}") for name, one in numbers.items()),
        *((one**2).sum().alias(f"squares/{name}") for name, one in numbers.items()),
    )
    present = fresh.drop_nulls("day")
    recent = present.filter(pl.col("day") > pl.col("day").max() - KEPT)
    values, firsts = {}, {}
    for role, name in columns.roles.items():
        values[role] = recent.group_by("day", pl.col(name).alias("value")).agg(pl.len().cast(pl.Int64).alias("rows"))
        if columns.known is None:
            firsts[role] = present.group_by(pl.col(name).alias("value")).agg(pl.col("day").min().alias("first"))
    return _Part(days, values, firsts, len(frame), len(frame) - len(fresh))


def _joined(parts: list[_Part], columns: _Columns) -> NewInteractions:
    total, late = (sum(getattr(part, name) for part in parts) for name in ("rows", "late"))
    sums = pl.concat([part.days for part in parts], how="vertical_relaxed") if parts else pl.DataFrame()
    if not len(sums) or (latest := sums["day"].max()) is None:
        return NewInteractions((), total - late, late, None, total)
    oldest = int(latest) - KEPT  # type: ignore[arg-type]
    # A row without a time is of the last day: its null counts there.
    days = sums.with_columns(pl.col("day").fill_null(latest)).filter(pl.col("day") > oldest)
    days = days.group_by("day").agg(pl.col("last").max(), pl.exclude("day", "last").sum())
    for role in columns.roles:
        values = pl.concat([part.values[role] for part in parts], how="vertical_relaxed")
        values = values.filter(pl.col("day") > oldest).group_by("day", "value").agg(pl.col("rows").sum())
        values = values.with_columns(_is_new(role, values, parts, columns.known).alias("new"))
        of_role = values.group_by("day").agg(
            pl.col("rows").max().alias(f"most/{role}"), (pl.col("rows") * pl.col("new")).sum().alias(f"unknown/{role}")
        )
        days = days.join(of_role, on="day", how="left")
    found = tuple(_day(row) for row in days.sort("day").iter_rows(named=True))
    return NewInteractions(found, total - late, late, max(day.last for day in found), total)


def _is_new(role: str, values: pl.DataFrame, parts: list[_Part], known: Mapping[str, pl.Series] | None) -> pl.Series:
    """Return a mask of values by day: outside the known ones, or on their first day."""
    if known is not None:
        if role not in known:
            return pl.repeat(value=False, n=len(values), eager=True)
        series = values["value"]
        return series.is_in(known[role].implode()).not_() & series.is_not_null()
    firsts = pl.concat([part.firsts[role] for part in parts], how="vertical_relaxed")
    firsts = firsts.group_by("value").agg(pl.col("first").min())
    joined = values.join(firsts, on="value", how="left", maintain_order="left")
    return (joined["day"] == joined["first"]).fill_null(value=False)


def _day(row: Mapping[str, Any]) -> Day:
    def of(kind: str) -> dict[str, Any]:
        return {name.partition("/")[2]: value for name, value in row.items() if name.startswith(f"{kind}/")}

    counts, totals, squares = of("count"), of("sum"), of("squares")
    sums = {name: (int(counts[name]), float(totals[name]), float(squares[name])) for name in counts}
    unknown = {role: int(number or 0) for role, number in of("unknown").items()}
    most = int(row["most/user"] or 0)
    return Day(row["day"], row["rows"], row["last"] or 0.0, most, unknown, of("nulls"), sums)
