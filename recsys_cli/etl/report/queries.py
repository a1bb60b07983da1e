"""The facts of the data report, merged from those of shards; only dimension tables are read here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from recsys_cli.etl.engine import Executor
from recsys_cli.etl.filters import RowCount
from recsys_cli.etl.fit import shard_groups
from recsys_cli.etl.report import facts
from recsys_cli.etl.report.shards import CompareRows, CountRows, Counts, Layout, RowCounts, Shards, Time, merged
from recsys_cli.etl.report.ties import audit_ties
from recsys_cli.features.schema import FIRST, NULL, UNSEEN, Column, Kind, Role, file_of
from recsys_cli.features.split import SPLITS, TRAIN
from recsys_cli.ops.fitted_plan import FittedPlan

ROWS = 1 << 21
"""Target number of compared rows: of larger data, users (or items) are sampled."""
_MOST_BINS = 128
_HEADS = {"0.01": 100, "0.1": 10}
_TRAIN = SPLITS[TRAIN]

Ends = Mapping[str, tuple[Any, Any]]
"""First and last time by split with times."""
OpCounts = Mapping[str, Sequence[RowCount]]
"""Row counts of the filters before the split, by source: "all", or the splits of a files split."""


@dataclass(frozen=True)
class EtlCounts:
    """The counts of the preparation.

    Attributes:
        missing: Counts of `null`, `unseen` and all `values`, by split and column.
        cold: Counts of `distinct` and `cold` users and items, by held-out split and role (`users`, `items`).
        chosen: Row counts of the filters before the split, by source.
        tie_seed: Seed of the order of ties; None for that of the file.
    """

    dataset: str
    method: str
    rows: Mapping[str, int]
    missing: Mapping[str, Mapping[str, Mapping[str, int]]]
    cold: Mapping[str, Mapping[str, Mapping[str, int]]]
    rejected: int
    chosen: OpCounts
    tie_seed: int | None = None


def gather_facts(folder: Path, fitted: FittedPlan, counted: EtlCounts, executor: Executor) -> facts.Facts:
    """Return all facts except the findings."""
    data = _Prepared(folder, fitted, counted)
    plan = fitted.plan
    counts = {name: fitted.vocabulary_of(name).column("count").to_numpy() for name in plan.categorified}
    totals: dict[str, RowCounts] = _totals(data, CountRows(data.layout, data.by, data.share), executor)
    statistics = {split: merged(one.statistics) for split, one in totals.items()}
    ends = {split: (row["first"], row["last"]) for split, row in statistics.items() if row["first"] is not None}
    edges = _edges(ends) if ends else []
    items = _most_frequent(data, totals)
    before = {} if data.layout.user is None else _before(ends, totals)
    last = _last(data, totals) if data.layout.pair and ends else {}
    compare = CompareRows(data.layout, _later(ends), np.array(edges[1:-1]), data.every, before, items, last)
    found = _totals(data, compare, executor)
    splits = {split: _split(data, split, statistics[split], counts) for split in SPLITS}
    pairs = _repeated(data, [totals[split].pairs for split in SPLITS])
    copies = _repeated(data, [totals[split].copies for split in SPLITS])
    return facts.Facts(
        dataset=counted.dataset,
        method=counted.method,
        item=plan.item,
        time=plan.timestamp,
        task=plan.tasks[plan.labels[0]],
        rejected=counted.rejected,
        ops=_rows_of_ops(fitted, counted.chosen, splits),
        splits=splits,
        missing=_missing(data, totals),
        continuous=tuple(column.name for column in fitted.schema("star").numeric),
        items=frequency(counts[plan.item]),
        users=frequency(counts[plan.user]),
        pairs=pairs if data.layout.pair else None,
        copies=copies if data.layout.pair and ends else None,
        targets=_targets(data, totals, items, found),
        timeline=_timeline(data, edges, {split: found[split].bins for split in ends}, splits) if ends else None,
        borders=tuple(
            facts.SplitBoundary(earlier=split, later=later, first=data.seconds(first), after=after, tied=tied)
            for split, others in _later(ends).items()
            for (later, first), (after, tied) in zip(others.items(), found[split].borders.tolist(), strict=True)
        ),
        ties=_ties(data, totals[_TRAIN], {split: {of: found[of].tied[split] for of in found} for split in last}),
        tie_seed=counted.tie_seed,
        future={split: found[split].future for split in list(ends)[1:]} if data.layout.user else {},
        train_only={
            name: bool(np.array_equal(ids[FIRST : data.layout.columns[name].own_ids.stop], counts[name]))
            for name, ids in totals[_TRAIN].ids.items()
            if _is_encoded_last(name, fitted)
        },
        # The files of a files split are filtered separately, so train does not depend on held-out rows.
        rows_first=tuple(count.title for count in counted.chosen.get("all", ())),
    )


@dataclass(frozen=True)
class _Prepared:
    """Prepared data."""

    folder: Path
    fitted: FittedPlan
    counted: EtlCounts

    @cached_property
    def layout(self) -> Layout:
        """The columns for the report."""
        plan, star = self.fitted.plan, self.fitted.schema("star")
        columns = {column.name: column for column in star.in_table(None)}
        with_ids = [name for name in dict.fromkeys((plan.user, plan.item, *star.tables)) if name in columns]
        single = {name for name, column in columns.items() if not column.ragged}
        return Layout(
            columns=columns,
            label=plan.labels[0],
            ids={
                name: columns[name].cardinality or FIRST if cold is None else cold.column("row")[-1].as_py() + 1
                for name, cold in zip(with_ids, map(self.fitted.cold_keys, with_ids), strict=True)
            },
            user=plan.user if plan.user in single else None,
            pair=(plan.user, plan.item) if {plan.user, plan.item} <= single else (),
            time=plan.timestamp if plan.timestamp in single else None,
            sampled=next((name for name, column in columns.items() if column.role is Role.SAMPLED), None),
            ticks=star.ticks,
            in_file_order=self.counted.tie_seed is None,
        )

    @cached_property
    def groups(self) -> list[Shards]:
        """The groups of shards of all splits."""
        files = {split: sorted((self.folder / split).glob("*.parquet")) for split in SPLITS}
        groups = [(split, group) for split, some in files.items() for group in shard_groups(len(some)) or [range(0)]]
        return [(split, files[split][group.start : group.stop]) for split, group in groups]

    @property
    def by(self) -> str:
        """The sampled column of pairs: users, or items if there are more of them."""
        return max(self.layout.pair, key=lambda name: self.layout.columns[name].own_ids.stop, default="")

    @property
    def share(self) -> float:
        """The share of its values."""
        return min(1.0, ROWS / max(sum(self.counted.rows.values()), 1))

    @property
    def every(self) -> int:
        """The sampling rate of the timeline."""
        return max(1, sum(self.counted.rows.values()) // ROWS)

    def seconds(self, time: Time | None) -> Time | None:
        """Return a time in seconds, or unchanged if the unit is unknown."""
        return time if time is None or self.layout.ticks == 1 else time / self.layout.ticks


def _totals(data: _Prepared, task: Callable[[Shards], Any], executor: Executor) -> dict[str, Any]:
    """Return the results of a task, added up by split."""
    totals: dict[str, Any] = {}
    for (split, _), part in zip(data.groups, executor.map(task, data.groups), strict=True):
        totals[split] = totals[split] + part if split in totals else part
    return totals


def _before(ends: Ends, totals: Mapping[str, RowCounts]) -> dict[str, npt.NDArray[Any]]:
    """Return the last time of each user in earlier splits, by split that overlaps with one of these."""
    before: dict[str, npt.NDArray[Any]] = {}
    for earlier, split in pairwise(ends):
        latest = totals[earlier].latest
        before[split] = np.maximum(before[earlier], latest) if earlier in before else latest
    names = list(ends)
    return {
        split: latest
        for split, latest in before.items()
        if any(ends[one][1] > ends[split][0] for one in names[: names.index(split)])
    }


def _last(data: _Prepared, totals: Mapping[str, RowCounts]) -> dict[str, npt.NDArray[Any]]:
    """Return the last time of each user by held-out split; that before the first row for users without an id or a sample."""
    user, ids = data.layout.pair[0], np.arange(len(totals[_TRAIN].latest))
    kept = data.layout.has_own(user, ids)
    kept[kept] = data.layout.selected(user, data.share)[ids[kept]]
    none = CountRows(data.layout, data.by, data.share).no_times()
    return {split: np.where(kept, totals[split].latest, none) for split in SPLITS[1:] if data.counted.rows[split]}


def _ties(data: _Prepared, train: RowCounts, rows: Mapping[str, Mapping[str, pl.DataFrame]]) -> dict[str, facts.Ties]:
    """Audit the rows at the last times of users, by held-out split and own split."""
    audited, orders = {}, _orders(data, train) if rows else {}
    for split, by_split in rows.items():
        parts = [part.with_columns(split=pl.lit(SPLITS.index(of), pl.Int64)) for of, part in by_split.items()]
        if len(by_split[split]):
            tests = len(rows) * (len(orders) - 1)
            audited[split] = audit_ties(pl.concat(parts), SPLITS.index(split), orders, tests=tests)
    return audited


def _orders(data: _Prepared, train: RowCounts) -> dict[str, Counts]:
    """Return the orders of the items for `audit_ties`."""
    item = data.layout.pair[1]
    counts = train.ids[item].astype(np.int64)
    values, own = np.full(len(counts), -1), data.layout.columns[item].own_ids
    ranks = pl.Series(data.fitted.vocabulary_of(item).column("value")).rank("ordinal").cast(pl.Int64)
    values[own.start : own.stop] = ranks.fill_null(-1)  # of forgotten items
    return {"rows": counts, "value": values} | ({"position": train.positions} if len(train.positions) else {})


def _later(ends: Ends) -> dict[str, dict[str, Time]]:
    """Return the first time of each later split, by split."""
    names = list(ends)
    return {split: {later: ends[later][0] for later in names[at + 1 :]} for at, split in enumerate(names)}


def _split(data: _Prepared, split: str, row: Mapping[str, Any], counts: Mapping[str, Counts]) -> facts.SplitFacts:
    counted, plan = data.counted, data.fitted.plan
    if split == _TRAIN:
        roles = {"users": plan.user, "items": plan.item}
        cold = {role: {"distinct": int(np.count_nonzero(counts[name])), "cold": 0} for role, name in roles.items()}
    else:
        cold = {role: dict(distinct) for role, distinct in counted.cold.get(split, {}).items()}
    null = counted.missing.get(split, {}).get(plan.labels[0], {}).get("null", row["null"])
    return facts.SplitFacts(
        rows=counted.rows[split],
        drawn=row["drawn"],
        dated=row["dated"],
        far=row["far"],
        users=facts.Distinct(**cold["users"]) if "users" in cold else None,
        items=facts.Distinct(**cold["items"]) if "items" in cold else None,
        label=facts.LabelFacts(
            mean=row["total"] / row["labels"] if row["labels"] else None,
            low=row["low"],
            high=row["high"],
            null=row["null"],
            zeroed=max(0, null - row["null"]),
            binary=row["labels"] > 0 and row["binary"],
        ),
        first=data.seconds(row["first"]),
        last=data.seconds(row["last"]),
    )


def _edges(ends: Ends) -> list[Time]:
    """Return the edges of the bins of the timeline; of integers, bins have a power of 2 as width."""
    low = min(first for first, _ in ends.values())
    span = max(last for _, last in ends.values()) - low
    width = span / _MOST_BINS or 1.0 if isinstance(span, float) else 1 << max(0, (span // _MOST_BINS).bit_length())
    return [low + position * width for position in range(int(span // width) + 2)]


def _timeline(
    data: _Prepared, edges: list[Time], bins: Mapping[str, Counts], splits: Mapping[str, facts.SplitFacts]
) -> facts.Timeline:
    every = data.every
    rows = {}
    for split, counts in bins.items():
        scale = splits[split].interactions / max(counts.sum(), 1) if every > 1 else 1
        rows[split] = tuple(np.rint(counts * scale).astype(np.int64).tolist())
    return facts.Timeline(edges=tuple(data.seconds(edge) for edge in edges), every=every, rows=rows)


def _repeated(data: _Prepared, keys: Sequence[Sequence[npt.NDArray[np.uint64]]]) -> facts.RepeatedPairs:
    """Count the repeated keys within and across splits, by keys of the splits in parts."""
    rows, repeated = {}, {}
    seen: dict[str, dict[str, int]] = {}
    distinct: dict[str, npt.NDArray[np.uint64]] = {}
    for split, of_split in zip(SPLITS, map(np.sort, map(np.concatenate, keys)), strict=True):
        if distinct:
            seen[split] = {earlier: _num_in(of_split, others) for earlier, others in distinct.items()}
        is_first = np.append(True, of_split[1:] != of_split[:-1])[: len(of_split)]
        distinct[split] = of_split[is_first]
        rows[split], repeated[split] = len(of_split), len(of_split) - len(distinct[split])
    return facts.RepeatedPairs(share=data.share, by=data.by, rows=rows, repeated=repeated, seen=seen)


def _num_in(keys: npt.NDArray[np.uint64], others: npt.NDArray[np.uint64]) -> int:
    """Count the keys among others; both are sorted."""
    positions = np.searchsorted(others, keys)
    inside = positions < len(others)
    return int(np.count_nonzero(others[positions[inside]] == keys[inside]))


def _most_frequent(data: _Prepared, totals: Mapping[str, RowCounts]) -> dict[str, int]:
    """Return the id of the most frequent item by held-out split, among those with ids of their own."""
    most = {}
    for split in SPLITS[1:] if data.layout.pair else ():
        item = data.layout.pair[1]
        rows = totals[split].ids[item][FIRST : data.layout.columns[item].own_ids.stop]
        if rows.any():
            most[split] = FIRST + int(rows.argmax())
    return most


def _targets(
    data: _Prepared, totals: Mapping[str, RowCounts], items: Mapping[str, int], found: Mapping[str, Any]
) -> dict[str, facts.CommonTarget]:
    """Count the users of the most frequent item by held-out split, for users with ids of their own."""
    targets = {}
    for split, most in items.items():
        user, item = data.layout.pair
        users = int(np.count_nonzero(totals[split].ids[user][FIRST : data.layout.columns[user].own_ids.stop]))
        value = str(data.fitted.vocabulary_of(item).column("value")[most - FIRST])
        if users:
            targets[split] = facts.CommonTarget(item=value, users=users, with_item=len(found[split].with_item))
    return targets


def _missing(data: _Prepared, totals: Mapping[str, RowCounts]) -> dict[str, dict[str, facts.MissingValues]]:
    """Return the missing values by column and split; those of dimension tables count once per interaction."""
    by_column: dict[str, dict[str, facts.MissingValues]] = {}
    for split, columns in data.counted.missing.items():
        for name, values in columns.items():
            by_column.setdefault(name, {})[split] = facts.MissingValues(**values)
    star = data.fitted.schema("star")
    for key in (key for key in star.tables if key in data.layout.ids):
        table = pl.read_parquet(data.folder / "tables" / file_of(key))
        for split in (split for split in SPLITS if data.counted.rows[split]):
            weighted = table.with_columns(pl.Series("weight", totals[split].ids[key][: table.height]))
            for column in star.in_table(key):
                by_column.setdefault(column.name, {})[split] = _missing_in_table(weighted, column)
    return {name: by_column[name] for name in star.names if name in by_column}


def _missing_in_table(table: pl.DataFrame, column: Column) -> facts.MissingValues:
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
    return facts.MissingValues(**counts.row(0, named=True))


def _rows_of_ops(
    fitted: FittedPlan, chosen: OpCounts, splits: Mapping[str, facts.SplitFacts]
) -> tuple[facts.OpRows, ...]:
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
        ops.append(facts.OpRows(op=op.title, columns=op.reads, rows_in=before, rows_out=sum(rows.values())))
    return tuple(ops)


def frequency(counts: Counts) -> facts.Frequency | None:
    """Return the distribution of value counts, zeros ignored; None without values."""
    ordered = np.sort(counts[counts > 0])[::-1]
    if not len(ordered):
        return None
    total = int(ordered.sum())
    return facts.Frequency(
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
