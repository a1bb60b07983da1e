"""The facts of the data report: queries over the prepared rows of each split, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from recsys_cli.cpu import Threads
from recsys_cli.etl.filters import RowCount
from recsys_cli.etl.report.facts import (
    CommonTarget,
    Distinct,
    Facts,
    Frequency,
    LabelFacts,
    MissingValues,
    OpRows,
    RepeatedPairs,
    SplitBoundary,
    SplitFacts,
    Timeline,
)
from recsys_cli.features.columns import row_column
from recsys_cli.features.hashing import hash_counters, mix
from recsys_cli.features.schema import FIRST, NULL, UNSEEN, Column, Kind, Role, file_of
from recsys_cli.features.split import SPLITS, TRAIN
from recsys_cli.ops.fitted_plan import FittedPlan

ROWS = 1 << 21
"""Target number of compared rows: of larger data, users (or items) are sampled."""
_SAMPLE_STREAM = 4
_MOST_BINS = 128
_FIRST_DATE, _FIRST_PLAUSIBLE, _LAST_DATE = -2_208_988_800, 10**8, 7_258_118_400
"""Seconds since 1970 of the years 1900, 1973 and 2200."""
_HEADS = {"0.01": 100, "0.1": 10}
_TRAIN = SPLITS[TRAIN]

Counts = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Time = int | float
RowCounts = Mapping[str, Sequence[RowCount]]
"""Row counts of the filters before the split, by source: "all", or the splits of a files split."""


@dataclass(frozen=True)
class EtlCounts:
    """The counts of the preparation.

    Attributes:
        missing: Counts of `null`, `unseen` and all `values`, by split and column.
        cold: Counts of `distinct` and `cold` users and items, by held-out split and role (`users`, `items`).
        chosen: Row counts of the filters before the split, by source.
    """

    dataset: str
    method: str
    rows: Mapping[str, int]
    missing: Mapping[str, Mapping[str, Mapping[str, int]]]
    cold: Mapping[str, Mapping[str, Mapping[str, int]]]
    rejected: int
    chosen: RowCounts


def gather_facts(folder: Path, fitted: FittedPlan, counted: EtlCounts) -> Facts:
    """Return all facts except the findings."""
    data = _Prepared(folder, fitted, counted)
    plan, counts = fitted.plan, {name: data.fitted_counts(name) for name in fitted.plan.categorified}
    splits = {split: _split(data, split, counts) for split in SPLITS}
    is_timed = data.time is not None and bool(data.ends)
    pairs, copies = _repetitions(data) if data.pair else (None, None)
    return Facts(
        dataset=counted.dataset,
        method=counted.method,
        item=plan.item,
        time=plan.timestamp,
        task=plan.tasks[plan.labels[0]],
        rejected=counted.rejected,
        ops=_rows_of_ops(fitted, counted.chosen, splits),
        splits=splits,
        missing=_missing(data),
        continuous=tuple(column.name for column in fitted.schema("star").numeric),
        items=frequency(counts[plan.item]),
        users=frequency(counts[plan.user]),
        pairs=pairs,
        copies=copies if is_timed else None,
        targets=_targets(data),
        timeline=_timeline(data, splits) if is_timed else None,
        borders=tuple(_borders(data)),
        future=_future(data),
        train_only={
            name: bool(np.array_equal(data.ids[_TRAIN][name][FIRST : data.columns[name].own_ids.stop], counts[name]))
            for name in data.counted_columns
            if _is_encoded_last(name, fitted)
        },
        # The files of a files split are filtered separately, so train does not depend on held-out rows.
        rows_first=tuple(count.title for count in counted.chosen.get("all", ())),
    )


@dataclass(frozen=True)
class _Prepared:
    """Prepared data, and its counts by split."""

    folder: Path
    fitted: FittedPlan
    counted: EtlCounts

    @cached_property
    def columns(self) -> dict[str, Column]:
        """The columns of the interactions."""
        return {column.name: column for column in self.fitted.schema("star").in_table(None)}

    @cached_property
    def counted_columns(self) -> list[str]:
        """The columns with counts by id: users, items, and keys of dimension tables."""
        names = (self.fitted.plan.user, self.fitted.plan.item, *self.fitted.schema("star").tables)
        return [name for name in dict.fromkeys(names) if name in self.columns]

    @cached_property
    def pair(self) -> tuple[str, ...]:
        """The user and the item column; empty if one is absent or has lists."""
        names = (self.fitted.plan.user, self.fitted.plan.item)
        return names if all(name in self.columns and not self.columns[name].ragged for name in names) else ()

    @cached_property
    def time(self) -> str | None:
        """The time column."""
        name = self.fitted.plan.timestamp
        return name if name in self.columns and not self.columns[name].ragged else None

    @cached_property
    def sampled(self) -> str | None:
        """The column of sampled negatives."""
        return next((name for name, column in self.columns.items() if column.role is Role.SAMPLED), None)

    @property
    def is_drawn(self) -> pl.Expr:
        """Mask of sampled negatives."""
        return pl.col(self.sampled) != 0 if self.sampled else pl.lit(value=False)

    @cached_property
    def ticks(self) -> int:
        """Time units per second; 1 if unknown."""
        return self.fitted.schema("star").ticks

    @cached_property
    def ends(self) -> dict[str, tuple[Time, Time]]:
        """First and last time of each split with times: all int or all float."""
        ends = {}
        for split in SPLITS if self.time is not None else ():
            time = pl.col(str(self.time))
            query = self.interactions(split).select(time.min().alias("first"), time.max().alias("last"))
            ends[split] = query.collect(engine="streaming").row(0)
        return {split: times for split, times in ends.items() if times[0] is not None}

    @cached_property
    def ids(self) -> dict[str, dict[str, Counts]]:
        """The number of interactions by split, column and id; with cold keys, by row of the dimension table."""
        return {split: {name: self._by_id(split, name) for name in self.counted_columns} for split in SPLITS}

    def _by_id(self, split: str, name: str) -> Counts:
        cold, of_table = self.fitted.cold_keys(name), row_column(name)
        total = (self.columns[name].cardinality or FIRST) if cold is None else cold.column("row")[-1].as_py() + 1
        has_rows = cold is not None and of_table in self.rows(split).collect_schema().names()
        counts = np.zeros(total, dtype=np.int64)
        for [ids] in self.arrays(split, of_table if has_rows else name):
            counts += np.bincount(ids, minlength=total)
        return counts

    def rows(self, split: str, files: Sequence[Path] = ()) -> pl.LazyFrame:
        """Return the rows of a split, or of some of its files, with times as int64 or float64."""
        files = files or self.files(split)
        frame = pl.scan_parquet(list(files or self.files(_TRAIN)), glob=False)
        if self.time is not None:
            kind = pl.Float64 if self.columns[self.time].dtype.startswith("float") else pl.Int64
            frame = frame.with_columns(pl.col(self.time).cast(kind))
        return frame if files else frame.clear()

    def interactions(self, split: str, files: Sequence[Path] = ()) -> pl.LazyFrame:
        """Return the rows of a split, or of some of its files, without sampled negatives."""
        rows = self.rows(split, files)
        return rows.filter(~self.is_drawn) if self.sampled else rows

    def files(self, split: str) -> list[Path]:
        """Return the files of a split."""
        return sorted((self.folder / split).glob("*.parquet"))

    def arrays(self, split: str, *names: str, own: Sequence[str] = ()) -> Iterator[Sequence[npt.NDArray[Any]]]:
        """Yield some columns of the interactions, or the elements of one with lists, by file.

        Only rows with ids of their own in the columns `own`.
        """
        yield from Threads().map(partial(self._arrays, split, names, own), self.files(split))

    def _arrays(self, split: str, names: Sequence[str], own: Sequence[str], file: Path) -> list[npt.NDArray[Any]]:
        rows = self.interactions(split, [file])
        for name in own:
            rows = rows.filter(pl.col(name).is_between(FIRST, self.columns[name].own_ids.stop - 1))
        frame = rows.select(names).drop_nulls().collect()
        if isinstance(frame.dtypes[0], pl.List):
            frame = frame.explode(names).drop_nulls()
        return [column.to_numpy() for column in frame]

    def fitted_counts(self, name: str) -> Counts:
        """Return the fitted train counts of the values of a column, by id."""
        counts: Counts = self.fitted.vocabulary_of(name).column("count").to_numpy()
        return counts


def _split(data: _Prepared, split: str, counts: Mapping[str, Counts]) -> SplitFacts:
    counted, plan = data.counted, data.fitted.plan
    if split == _TRAIN:
        roles = {"users": plan.user, "items": plan.item}
        cold = {role: {"distinct": int(np.count_nonzero(counts[name])), "cold": 0} for role, name in roles.items()}
    else:
        cold = {role: dict(distinct) for role, distinct in counted.cold.get(split, {}).items()}
    query = data.rows(split).select(*_label_statistics(plan.labels[0]), *_time_statistics(data))
    row = query.collect(engine="streaming").row(0, named=True)
    null = counted.missing.get(split, {}).get(plan.labels[0], {}).get("null", row["null"])
    first, last = (_seconds(data, end) for end in data.ends.get(split, (None, None)))
    return SplitFacts(
        rows=counted.rows[split],
        drawn=row["drawn"],
        dated=row["dated"],
        far=row["far"],
        users=Distinct(**cold["users"]) if "users" in cold else None,
        items=Distinct(**cold["items"]) if "items" in cold else None,
        label=LabelFacts(
            mean=row["mean"],
            low=row["low"],
            high=row["high"],
            null=row["null"],
            zeroed=max(0, null - row["null"]),
            binary=row["mean"] is not None and row["binary"],
        ),
        first=first,
        last=last,
    )


def _label_statistics(label: str) -> Iterator[pl.Expr]:
    values = pl.col(label).cast(pl.Float64).fill_nan(None)
    yield values.null_count().alias("null")
    yield values.mean().alias("mean")
    yield values.min().alias("low")
    yield values.max().alias("high")
    yield values.is_in([0.0, 1.0]).all().alias("binary")


def _time_statistics(data: _Prepared) -> Iterator[pl.Expr]:
    yield data.is_drawn.sum().alias("drawn")
    first, plausible, last = (end * data.ticks for end in (_FIRST_DATE, _FIRST_PLAUSIBLE, _LAST_DATE))
    time = pl.col(data.time) if data.time is not None else pl.lit(None, pl.Int64)
    yield (time.is_between(plausible, last, closed="left") & ~data.is_drawn).sum().alias("dated")
    yield (((time < first) | (time >= last)) & ~data.is_drawn).sum().alias("far")


def _seconds(data: _Prepared, time: Time | None) -> Time | None:
    """Return a time in seconds, or unchanged if the unit is unknown."""
    return time if time is None or data.ticks == 1 else time / data.ticks


def _borders(data: _Prepared) -> Iterator[SplitBoundary]:
    for earlier, later in combinations(data.ends, 2):
        first, time = data.ends[later][0], pl.col(str(data.time))
        counts = [(time > first).sum().alias("after"), (time == first).sum().alias("tied")]
        query = data.interactions(earlier).select(counts)
        row = query.collect(engine="streaming").row(0, named=True)
        yield SplitBoundary(earlier=earlier, later=later, first=_seconds(data, first), **row)


def _timeline(data: _Prepared, splits: Mapping[str, SplitFacts]) -> Timeline:
    """Count the rows in bins; of integers, bins have a power of 2 as width."""
    low = min(first for first, _ in data.ends.values())
    high = max(last for _, last in data.ends.values())
    span = high - low
    width = span / _MOST_BINS or 1.0 if isinstance(span, float) else 1 << max(0, (span // _MOST_BINS).bit_length())
    edges = [low + position * width for position in range(int(span // width) + 2)]
    every = max(1, sum(data.counted.rows.values()) // ROWS)
    rows = {}
    inner = np.array(edges[1:-1])
    for split in data.ends:
        counts = np.zeros(len(edges) - 1, dtype=np.int64)
        for [times] in data.arrays(split, str(data.time)):
            counts += np.bincount(np.searchsorted(inner, times[::every], side="right"), minlength=len(counts))
        if every > 1:
            counts = np.rint(counts * (splits[split].interactions / max(counts.sum(), 1))).astype(np.int64)
        rows[split] = tuple(counts.tolist())
    return Timeline(edges=tuple(_seconds(data, edge) for edge in edges), every=every, rows=rows)


def _repetitions(data: _Prepared) -> tuple[RepeatedPairs, RepeatedPairs]:
    """Count the rows with the user and item of another row, and with its time as well, within and across splits.

    All rows of some users are compared, selected by a hash of their ids, or of some items if there are more of them.
    """
    by = max((data.columns[name] for name in data.pair), key=lambda column: column.own_ids.stop)
    share = min(1.0, ROWS / max(sum(data.counted.rows.values()), 1))
    hashes = hash_counters(np.arange(by.own_ids.stop, dtype=np.uint64), mix(0, _SAMPLE_STREAM))
    selected = np.ones(len(hashes), dtype=bool) if share == 1 else hashes < np.uint64(int(share * 2**64))
    keys = [_keys(data, split, by.name, selected) for split in SPLITS]
    pairs, copies = (_repeated([one[kind] for one in keys], share=share, by=by.name) for kind in (0, 1))
    return pairs, copies


def _keys(data: _Prepared, split: str, by: str, selected: npt.NDArray[np.bool_]) -> tuple[Keys, Keys]:
    """Return sorted numbers of the selected rows: one for the user and item of each, one for the time as well."""
    names = [*data.pair, *([data.time] if data.time else [])]
    parts, timed = [np.zeros(0, dtype=np.uint64)], [np.zeros(0, dtype=np.uint64)]
    for columns in data.arrays(split, *names, own=data.pair):
        at = np.flatnonzero(selected[columns[names.index(by)]])
        user, item, *times = (column[at] for column in columns)
        parts.append(user.astype(np.uint64) * np.uint64(data.columns[names[1]].own_ids.stop) + item.astype(np.uint64))
        for time in times:  # a chance collision among 2 million rows has a probability of 1e-7
            keys = hash_counters(parts[-1], mix(0, _SAMPLE_STREAM))
            timed.append(hash_counters(time.view(np.uint64), keys))
    return np.sort(np.concatenate(parts)), np.sort(np.concatenate(timed))


def _repeated(keys: Sequence[Keys], *, share: float, by: str) -> RepeatedPairs:
    """Count the repeated keys within and across splits, by sorted keys of the splits."""
    rows, repeated = {}, {}
    seen: dict[str, dict[str, int]] = {}
    distinct: dict[str, Keys] = {}
    for split, of_split in zip(SPLITS, keys, strict=True):
        if distinct:
            seen[split] = {earlier: _num_in(of_split, others) for earlier, others in distinct.items()}
        is_first = np.append(True, of_split[1:] != of_split[:-1])[: len(of_split)]
        distinct[split] = of_split[is_first]
        rows[split], repeated[split] = len(of_split), len(of_split) - len(distinct[split])
    return RepeatedPairs(share=share, by=by, rows=rows, repeated=repeated, seen=seen)


def _num_in(keys: Keys, others: Keys) -> int:
    """Count the keys among others; both are sorted."""
    positions = np.searchsorted(others, keys)
    inside = positions < len(others)
    return int(np.count_nonzero(others[positions[inside]] == keys[inside]))


def _targets(data: _Prepared) -> dict[str, CommonTarget]:
    """Count the users of the most frequent item by held-out split, for users and items with ids of their own."""
    found: dict[str, CommonTarget] = {}
    for split in SPLITS[1:] if data.pair else ():
        user, item = data.pair
        rows = data.ids[split][item][FIRST : data.columns[item].own_ids.stop]
        if not rows.any():
            continue
        most = int(rows.argmax())
        users, with_item = np.zeros((2, data.columns[user].own_ids.stop), dtype=bool)
        for ids, items in data.arrays(split, user, item, own=[user]):
            users[ids] = True
            with_item[ids[items == FIRST + most]] = True
        if users.any():
            value = str(data.fitted.vocabulary_of(item).column("value")[most])
            every, some = (int(np.count_nonzero(mask)) for mask in (users, with_item))
            found[split] = CommonTarget(item=value, users=every, with_item=some)
    return found


def _future(data: _Prepared) -> dict[str, int]:
    """Count the held-out rows with a later row of the same user in an earlier split, for users with ids of their own.

    Splits that end before the next one begins are not read.
    """
    user, time, counts = data.fitted.plan.user, data.time, {}
    if time is None or not data.ends or user not in data.columns or data.columns[user].ragged:
        return {}
    low = min(first for first, _ in data.ends.values())
    latest = np.full(data.columns[user].own_ids.stop, low)
    names = list(data.ends)
    for number, split in enumerate(names):
        if number:
            overlaps = any(data.ends[earlier][1] > data.ends[split][0] for earlier in names[:number])
            rows = data.arrays(split, user, time, own=[user]) if overlaps else ()
            counts[split] = sum(int(np.count_nonzero(times < latest[users])) for users, times in rows)
        if number < len(names) - 1:
            for users, times in data.arrays(split, user, time, own=[user]):
                np.maximum.at(latest, users, times)
    return counts


def _missing(data: _Prepared) -> dict[str, dict[str, MissingValues]]:
    """Return the missing values by column and split; those of dimension tables count once per interaction."""
    by_column: dict[str, dict[str, MissingValues]] = {}
    for split, columns in data.counted.missing.items():
        for name, values in columns.items():
            by_column.setdefault(name, {})[split] = MissingValues(**values)
    star = data.fitted.schema("star")
    for key in (key for key in star.tables if key in data.counted_columns):
        table = pl.read_parquet(data.folder / "tables" / file_of(key))
        for split in (split for split in SPLITS if data.counted.rows[split]):
            weighted = table.with_columns(pl.Series("weight", data.ids[split][key][: table.height]))
            for column in star.in_table(key):
                by_column.setdefault(column.name, {})[split] = _missing_in_table(weighted, column)
    return {name: by_column[name] for name in star.names if name in by_column}


def _missing_in_table(table: pl.DataFrame, column: Column) -> MissingValues:
    weight = pl.col("weight")
    rows = table.select(pl.col(column.name).alias("value"), weight)
    if column.ragged:
        rows = rows.filter(pl.col("value").list.len() > 0).explode("value")
    value = pl.col("value")
    if column.kind is Kind.NUMERIC:
        numbers = value.cast(pl.Float64).fill_nan(None)
        masks = {"null": numbers.is_null(), "infinite": numbers.is_infinite()}
    else:
        masks = {"null": value == NULL, "unseen": (value == UNSEEN) | (value >= column.own_ids.stop)}
    counts = rows.select(weight.sum().alias("values"), *(weight.filter(one).sum().alias(k) for k, one in masks.items()))
    return MissingValues(**counts.row(0, named=True))


def _rows_of_ops(fitted: FittedPlan, chosen: RowCounts, splits: Mapping[str, SplitFacts]) -> tuple[OpRows, ...]:
    """Return the numbers of rows before and after each op: only filters and negative sampling change them."""
    interactions = {name: split.interactions for name, split in splits.items()}
    # Without filters, the raw rows of a source are those of its split.
    first = {source: interactions.get(source, sum(interactions.values())) for source in chosen}
    rows = {source: counts[0].rows_in if counts else first[source] for source, counts in chosen.items()} or interactions
    ops = []
    for index, op in enumerate(fitted.plan.ops):
        before = sum(rows.values())
        rows = rows | {
            source: count.rows_out for source, counts in chosen.items() for count in counts if count.index == index
        }
        if op == fitted.program.draw:
            rows = {name: split.rows for name, split in splits.items()}
        ops.append(OpRows(op=op.title, columns=op.reads, rows_in=before, rows_out=sum(rows.values())))
    return tuple(ops)


def frequency(counts: Counts) -> Frequency | None:
    """Return the distribution of value counts, zeros ignored; None without values."""
    ordered = np.sort(counts[counts > 0])[::-1]
    if not len(ordered):
        return None
    total = int(ordered.sum())
    return Frequency(
        distinct=len(ordered),
        rows=total,
        least=int(ordered[-1]),
        median=float(np.median(ordered)),
        most=int(ordered[0]),
        once=int(np.count_nonzero(ordered == 1)),
        head={name: int(ordered[: -(-len(ordered) // part)].sum()) / total for name, part in _HEADS.items()},
    )


def _is_encoded_last(column: str, fitted: FittedPlan) -> bool:
    """Whether Categorify is the last op on a column: prepared and fitted counts must be equal."""
    writers = [step.op for step in fitted.program.steps if column in step.writes]
    return bool(writers) and column in writers[-1].encodes
