"""Collection of the facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recsys_cli.etl.filters import RowCount
from recsys_cli.etl.report.census import Census, CensusSpec, Clock, census_spec, repetitions, take_census
from recsys_cli.etl.report.facts import (
    CommonTarget,
    Distinct,
    Facts,
    Frequency,
    Growth,
    MissingValues,
    OpRows,
    SplitBoundary,
    SplitFacts,
    Timeline,
)
from recsys_cli.etl.transform import count_numbers
from recsys_cli.features.schema import FIRST, NULL, UNSEEN, Column, Kind, Schema, file_of
from recsys_cli.features.split import SPLITS, TRAIN
from recsys_cli.ops.fitted_plan import FittedPlan

RowCounts = Mapping[str, Sequence[RowCount]]
"""Row counts of the filters before the split, by source: "all", or the splits of a files split."""


def flow(fitted: FittedPlan, chosen: RowCounts, splits: Mapping[str, SplitFacts]) -> tuple[OpRows, ...]:
    """Return the numbers of rows before and after each op: only filters and negative sampling change them."""
    interactions = {name: split.rows - split.drawn for name, split in splits.items()}
    rows = {source: _first(source, counts, interactions) for source, counts in chosen.items()} or interactions
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


def _first(source: str, counts: Sequence[RowCount], interactions: Mapping[str, int]) -> int:
    """Return the raw rows of a source; without filters, the rows of its split."""
    return counts[0].rows_in if counts else interactions.get(source, sum(interactions.values()))


Counts = npt.NDArray[np.int64]
_HEADS = {"0.01": 100, "0.1": 10}
_POINTS = 120
_BINS = 32
_GROWTH_POINTS = 30


def frequency(counts: Counts) -> Frequency | None:
    """Return the distribution of value counts, zeros ignored; None without values."""
    ordered = np.sort(counts[counts > 0])[::-1]
    if not len(ordered):
        return None
    positions = np.unique(np.geomspace(1, len(ordered), _POINTS).round().astype(np.int64))
    most = int(ordered[0])
    edges = np.unique(np.geomspace(1, most + 1, _BINS + 1).round().astype(np.int64))
    total = int(ordered.sum())
    return Frequency(
        distinct=len(ordered),
        rows=total,
        least=int(ordered[-1]),
        median=float(np.median(ordered)),
        most=most,
        once=int(np.count_nonzero(ordered == 1)),
        head={name: int(ordered[: -(-len(ordered) // part)].sum()) / total for name, part in _HEADS.items()},
        ranks=tuple(positions.tolist()),
        counts=tuple(ordered[positions - 1].tolist()),
        edges=tuple(edges.tolist()),
        heights=tuple(np.histogram(ordered, edges)[0].tolist()),
    )


def growth(counts: Counts, rows: int) -> Growth | None:
    """Return the expected distinct values in a random part of the rows, from value counts; None without values.

    In a sample of rows with probability p, a value with count c occurs with probability 1 - (1 - p)^c: the rarefaction
    curve of ecology (Heck, van Belle and Simberloff, 1975). It needs only the counts, not the rows.
    """
    sizes, multiplicities = np.unique(counts[counts > 0], return_counts=True)
    if not len(sizes):
        return None
    parts = np.linspace(0, 1, _GROWTH_POINTS + 1) ** 2  # denser at the steep start of the curve
    seen = np.array([_expected(part, sizes, multiplicities) for part in parts])
    return Growth(
        rows=tuple((parts * rows).round().astype(np.int64).tolist()),
        values=tuple(seen.tolist()),
        last_tenth=float(1 - _expected(0.9, sizes, multiplicities) / seen[-1]),
    )


def _expected(part: float, sizes: Counts, multiplicities: npt.NDArray[np.intp]) -> float:
    return float(((1 - (1 - part) ** sizes) * multiplicities).sum())


Ids = npt.NDArray[np.int64]


def read_user_rows(
    paths: Sequence[Path], user: Column, other: str, *, sampled: str | None
) -> Iterator[tuple[Ids, npt.NDArray[Any]]]:
    """Yield users with an id of their own and the values of another column, without nulls and sampled negatives."""
    columns = [user.name, other, *([sampled] if sampled else [])]
    for path in paths:
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                rows = file.read_row_group(group, columns=columns, use_threads=False)
                rows = rows.filter(pc.equal(rows.column(sampled), 0)) if sampled else rows
                rows = rows.drop_null()
                users = rows.column(user.name).to_numpy().astype(np.int64)
                own = (users >= FIRST) & (users < user.own_ids.stop)
                yield users[own], rows.column(other).to_numpy()[own]


def rows_with_a_future(
    user: Column, timestamp: str, sampled: str | None, shards: Mapping[str, Sequence[Path]], clock: Clock
) -> dict[str, int]:
    """Count these rows by held-out split, for users with an id of their own; equal times do not count.

    Rows are read again by row group. Splits that end before the next one begins are not read.
    """
    latest = np.full(user.own_ids.stop, clock.low, dtype=np.array(clock.low).dtype)
    counts: dict[str, int] = {}
    for number, split in enumerate(name for name in SPLITS if name in clock.ends):
        if number:
            begins = clock.ends[split][0]
            overlaps = any(clock.ends[earlier][1] > begins for earlier, later in clock.borders if later == split)
            parts = read_user_rows(shards[split], user, timestamp, sampled=sampled) if overlaps else ()
            counts[split] = sum(int(np.count_nonzero(times < latest[users])) for users, times in parts)
        if number < len(clock.ends) - 1:
            for users, times in read_user_rows(shards[split], user, timestamp, sampled=sampled):
                np.maximum.at(latest, users, times)
    return counts


def common_targets(
    user: Column,
    item: Column,
    values: pa.ChunkedArray,
    sampled: str | None,
    shards: Mapping[str, Sequence[Path]],
    counts: Mapping[str, npt.NDArray[np.int64]],
) -> dict[str, CommonTarget]:
    """Count the users of the most frequent item by held-out split, for users and items with ids of their own.

    Held-out rows are read again by row group; memory grows with the number of users. `values` are the raw items by id,
    `counts` the rows of each item by split.
    """
    found = {}
    for split in (name for name in SPLITS if name != SPLITS[TRAIN]):
        rows = counts[split][FIRST : item.own_ids.stop]
        if not rows.any():
            continue
        most = int(rows.argmax())
        users, with_item = np.zeros((2, user.own_ids.stop), dtype=bool)
        for of_users, items in read_user_rows(shards[split], user, item.name, sampled=sampled):
            users[of_users] = True
            with_item[of_users[items == FIRST + most]] = True
        if users.any():
            found[split] = CommonTarget(
                item=str(values[most]),
                users=int(np.count_nonzero(users)),
                with_item=int(np.count_nonzero(with_item)),
            )
    return found


def in_tables(folder: Path, schema: Schema, ids: Mapping[str, Counts]) -> Iterator[tuple[str, MissingValues]]:
    """Yield each table column with its missing values, counted as in the flat layout.

    `ids` has the number of interactions by id of each key, or by table row for tables with cold keys.
    """
    for key in schema.tables:
        table = pq.read_table(folder / "tables" / file_of(key))
        for column in schema.in_table(key):
            if key in ids:
                yield column.name, _missing_in_table(table.column(column.name), column, ids[key][: table.num_rows])


def _missing_in_table(values: pa.ChunkedArray, column: Column, weights: Counts) -> MissingValues:
    if column.ragged:
        lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy()
        weights, values = np.repeat(weights, lengths), pc.list_flatten(values)
    if column.kind is Kind.NUMERIC:
        return MissingValues(unseen=0, **count_numbers(values, weights))
    column_ids = values.to_numpy()
    unseen = column_ids == UNSEEN
    if column.buckets and column.cardinality is not None:
        unseen |= column_ids >= column.cardinality - column.buckets
    return MissingValues(
        null=int(weights[column_ids == NULL].sum()), unseen=int(weights[unseen].sum()), values=int(weights.sum())
    )


_TRAIN = SPLITS[TRAIN]


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
    shards = {split: sorted((folder / split).glob("*.parquet")) for split in SPLITS}
    spec = census_spec(fitted, shards, sum(counted.rows.values()))
    census = take_census(spec, shards)
    counts = {name: _counts(fitted, name) for name in fitted.plan.categorified}
    splits = {split: _split(split, census[split], spec, counted, counts, fitted) for split in SPLITS}
    interactions = splits[_TRAIN].interactions
    grown = {name: growth(column, interactions) for name, column in counts.items()}
    return Facts(
        dataset=counted.dataset,
        method=counted.method,
        item=fitted.plan.item,
        time=fitted.plan.timestamp,
        task=fitted.plan.tasks[spec.label],
        rejected=counted.rejected,
        ops=flow(fitted, counted.chosen, splits),
        splits=splits,
        missing=_missing(folder, fitted, counted, census),
        continuous=tuple(column.name for column in fitted.schema("star").numeric),
        growth={name: curve for name, curve in grown.items() if curve is not None},
        items=frequency(counts[fitted.plan.item]),
        users=frequency(counts[fitted.plan.user]),
        pairs=repetitions(spec.sample, {split: one.keys() for split, one in census.items()}) if spec.sample else None,
        copies=repetitions(spec.sample, {split: one.timed_keys() for split, one in census.items()})
        if spec.sample and spec.clock
        else None,
        targets=_targets(spec, shards, fitted, census),
        timeline=_timeline(spec.clock, census, splits),
        borders=_borders(spec.clock, census),
        future=_future(spec, shards, fitted.plan.user),
        train_only={
            column.name: _equals_train_counts(column, census, counts)
            for column in spec.ids
            if _is_encoded_last(column.name, fitted)
        },
        # The files of a files split are filtered separately, so train does not depend on held-out rows.
        rows_first=tuple(count.title for count in counted.chosen.get("all", ())),
    )


def _counts(fitted: FittedPlan, column: str) -> npt.NDArray[np.int64]:
    counts: npt.NDArray[np.int64] = fitted.vocabulary_of(column).column("count").to_numpy()
    return counts


def _split(
    split: str,
    census: Census,
    spec: CensusSpec,
    counted: EtlCounts,
    counts: Mapping[str, npt.NDArray[np.int64]],
    fitted: FittedPlan,
) -> SplitFacts:
    if split == _TRAIN:
        roles = {"users": fitted.plan.user, "items": fitted.plan.item}
        cold = {role: {"distinct": int(np.count_nonzero(counts[name])), "cold": 0} for role, name in roles.items()}
    else:
        cold = {role: dict(distinct) for role, distinct in counted.cold.get(split, {}).items()}
    null = counted.missing.get(split, {}).get(spec.label, {}).get("null", census.label.null)
    label = census.label.model_copy(update={"zeroed": max(0, null - census.label.null)})
    ends = spec.clock.ends.get(split) if spec.clock else None
    first, last = (None, None) if spec.clock is None or ends is None else map(spec.clock.seconds, ends)
    return SplitFacts(
        rows=counted.rows[split],
        drawn=census.num_sampled,
        dated=census.dated,
        far=census.far,
        users=Distinct(**cold["users"]) if "users" in cold else None,
        items=Distinct(**cold["items"]) if "items" in cold else None,
        label=label,
        first=first,
        last=last,
    )


def _missing(
    folder: Path, fitted: FittedPlan, counted: EtlCounts, census: Mapping[str, Census]
) -> dict[str, dict[str, MissingValues]]:
    by_column: dict[str, dict[str, MissingValues]] = {}
    for split, columns in counted.missing.items():
        for name, values in columns.items():
            by_column.setdefault(name, {})[split] = MissingValues(**{"unseen": 0} | dict(values))
    star = fitted.schema("star")
    for split, split_census in census.items():
        for column, missing in in_tables(folder, star, split_census.ids):
            if counted.rows[split]:
                by_column.setdefault(column, {}).setdefault(split, missing)
    return {name: by_column[name] for name in star.names if name in by_column}


def _timeline(clock: Clock | None, census: Mapping[str, Census], splits: Mapping[str, SplitFacts]) -> Timeline | None:
    if clock is None:
        return None
    rows = {}
    for name in clock.ends:
        counts = census[name].times
        if clock.every > 1:
            scale = splits[name].interactions / max(counts.sum(), 1)
            counts = np.rint(counts * scale).astype(np.int64)
        rows[name] = tuple(counts.tolist())
    return Timeline(edges=tuple(map(clock.seconds, clock.edges)), every=clock.every, rows=rows)


def _borders(clock: Clock | None, census: Mapping[str, Census]) -> tuple[SplitBoundary, ...]:
    if clock is None:
        return ()
    return tuple(
        SplitBoundary(
            earlier=earlier,
            later=later,
            first=clock.seconds(clock.ends[later][0]),
            after=census[earlier].after[later],
            tied=census[earlier].tied[later],
        )
        for earlier, later in clock.borders
    )


def _future(spec: CensusSpec, shards: Mapping[str, Sequence[Path]], user: str) -> dict[str, int]:
    column = next((column for column in spec.ids if column.name == user and not column.ragged), None)
    if spec.clock is None or spec.timestamp is None or column is None:
        return {}
    return rows_with_a_future(column, spec.timestamp, spec.sampled, shards, spec.clock)


def _targets(
    spec: CensusSpec, shards: Mapping[str, Sequence[Path]], fitted: FittedPlan, census: Mapping[str, Census]
) -> dict[str, CommonTarget]:
    if spec.sample is None:
        return {}
    values = fitted.vocabulary_of(fitted.plan.item).column("value")
    counts = {split: one.ids[fitted.plan.item] for split, one in census.items()}
    return common_targets(spec.sample.user, spec.sample.item, values, spec.sampled, shards, counts)


def _is_encoded_last(column: str, fitted: FittedPlan) -> bool:
    """Whether Categorify is the last op on a column: prepared and fitted counts must be equal."""
    writers = [step.op for step in fitted.program.steps if column in step.writes]
    return bool(writers) and column in writers[-1].encodes


def _equals_train_counts(
    column: Column, census: Mapping[str, Census], counts: Mapping[str, npt.NDArray[np.int64]]
) -> bool:
    return bool(np.array_equal(census[_TRAIN].ids[column.name][FIRST : column.own_ids.stop], counts[column.name]))
