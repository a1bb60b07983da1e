"""Collection of the facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from recsys_cli.etl.report import sample
from recsys_cli.etl.report.census import Census, CensusSpec, take_census
from recsys_cli.etl.report.clock import Clock, read_clock
from recsys_cli.etl.report.facts import (
    CommonTarget,
    Distinct,
    Facts,
    MissingValues,
    SplitBoundary,
    SplitFacts,
    Timeline,
)
from recsys_cli.etl.report.flow import RowCounts, flow
from recsys_cli.etl.report.frequency import frequency, growth
from recsys_cli.etl.report.future import rows_with_a_future
from recsys_cli.etl.report.sample import Sample, repetitions
from recsys_cli.etl.report.tables import in_tables
from recsys_cli.etl.report.targets import common_targets
from recsys_cli.features.schema import FIRST, Column, Role
from recsys_cli.features.split import SPLITS, TRAIN
from recsys_cli.ops.fitted_plan import FittedPlan

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
    spec = _census_spec(fitted, shards, counted)
    census = take_census(spec, shards)
    counts = {name: _counts(fitted, name) for name in fitted.plan.categorified}
    splits = {split: _split(split, census[split], spec, counted, counts, fitted) for split in SPLITS}
    interactions = splits[_TRAIN].interactions
    grown = {name: growth(column, interactions) for name, column in counts.items()}
    return Facts(
        dataset=counted.dataset,
        method=counted.method,
        item=fitted.plan.item,
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


def _census_spec(fitted: FittedPlan, shards: Mapping[str, Sequence[Path]], counted: EtlCounts) -> CensusSpec:
    schema, plan = fitted.schema("star"), fitted.plan
    columns = {column.name: column for column in schema.in_table(None)}
    user, item = columns.get(plan.user), columns.get(plan.item)
    ids = dict.fromkeys(name for name in (plan.user, plan.item, *schema.tables) if name in columns)
    pair = user is not None and item is not None and not user.ragged and not item.ragged
    timestamp = plan.timestamp if plan.timestamp in columns else None
    rows = sum(counted.rows.values())
    every = max(1, rows // sample.ROWS)
    sampled = [column.name for column in columns.values() if column.role is Role.SAMPLED]
    return CensusSpec(
        ids=tuple(columns[name] for name in ids),
        sample=Sample(user, item, rows) if pair and user and item else None,
        label=plan.labels[0],
        timestamp=timestamp,
        clock=read_clock(timestamp, shards, every=every, ticks=schema.ticks) if timestamp else None,
        sampled=sampled[0] if sampled else None,
        table_rows={
            name: cold.column("row")[-1].as_py() + 1 for name in ids if (cold := fitted.cold_keys(name)) is not None
        },
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
