"""Puts the facts together, from what the ETL counted on its way and from one pass over the prepared rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from recsys_cli.etl.report import sample
from recsys_cli.etl.report.census import Census, CensusQuestion, take_census
from recsys_cli.etl.report.clock import Clock, read_clock
from recsys_cli.etl.report.facts import (
    Distinct,
    Facts,
    MissingValues,
    RepeatedPairs,
    SplitBoundary,
    SplitFacts,
    Timeline,
)
from recsys_cli.etl.report.flow import Chosen, flow
from recsys_cli.etl.report.frequency import frequency, growth
from recsys_cli.etl.report.sample import Sample, known, repetitions
from recsys_cli.etl.report.tables import in_tables
from recsys_cli.features.fitted_plan import FittedPlan
from recsys_cli.features.schema import FIRST, Column, Role
from recsys_cli.features.split import SPLITS, TRAIN

_TRAIN = SPLITS[TRAIN]


@dataclass(frozen=True)
class EtlCounts:
    """What the ETL knows without another look.

    Attributes:
        dataset: Name of the dataset.
        method: How it was split.
        rows: Rows of each split.
        missing: By split and column how many values are `null` and `unseen`, and how many `values` there are.
        cold: By held-out split and role (`users`, `items`) how many `distinct` there are, and how many are `cold`.
        rejected: Rows that could not be read.
        chosen: What ops did to the rows before the split, by source.
    """

    dataset: str
    method: str
    rows: Mapping[str, int]
    missing: Mapping[str, Mapping[str, Mapping[str, int]]]
    cold: Mapping[str, Mapping[str, Mapping[str, int]]]
    rejected: int
    chosen: Chosen


def gather_facts(folder: Path, fitted: FittedPlan, counted: EtlCounts) -> Facts:
    """Work out all facts but the findings.

    Args:
        folder: The prepared data, whole but for the report.
        fitted: The fitted plan.
        counted: What is known already.
    """
    shards = {split: sorted((folder / split).glob("*.parquet")) for split in SPLITS}
    look = _look(fitted, shards, counted)
    census = take_census(look, shards)
    counts = {name: _counts(fitted, name) for name in fitted.plan.categorified}
    splits = {split: _split(split, census[split], look, counted, counts, fitted) for split in SPLITS}
    made = splits[_TRAIN].rows - splits[_TRAIN].drawn
    grown = {name: growth(found, made) for name, found in counts.items()}
    return Facts(
        dataset=counted.dataset,
        method=counted.method,
        task=fitted.plan.tasks[look.label],
        rejected=counted.rejected,
        ops=flow(fitted, counted.chosen, splits),
        splits=splits,
        missing=_missing(folder, fitted, counted, census),
        continuous=tuple(column.name for column in fitted.schema("star").numeric),
        growth={name: found for name, found in grown.items() if found is not None},
        items=frequency(counts[fitted.plan.item]),
        users=frequency(counts[fitted.plan.user]),
        pairs=_pairs(look.sample, census),
        timeline=_timeline(look.clock, census, splits),
        borders=_borders(look.clock, census),
        train_only={
            column.name: _is_of_train(column, census, counts)
            for column in look.ids
            if _is_as_learnt(column.name, fitted)
        },
        # Given files are gone over one by one, so that nothing in train depends on those held out.
        rows_first=tuple(count.title for count in counted.chosen.get("all", ())),
    )


def _look(fitted: FittedPlan, shards: Mapping[str, Sequence[Path]], counted: EtlCounts) -> CensusQuestion:
    """Decide what to look at: ids of users, of items and of the tables' keys, where the interactions have them."""
    schema, plan = fitted.schema("star"), fitted.plan
    here = {column.name: column for column in schema.in_table(None)}
    user, item = here.get(plan.user), here.get(plan.item)
    ids = dict.fromkeys(name for name in (plan.user, plan.item, *schema.tables) if name in here)
    pair = user is not None and item is not None and not user.ragged and not item.ragged
    timestamp = plan.timestamp if plan.timestamp in here else None
    rows = sum(counted.rows.values())
    every = max(1, rows // sample.ROWS)
    drawn = [column.name for column in here.values() if column.role is Role.SAMPLED]
    return CensusQuestion(
        ids=tuple(here[name] for name in ids),
        sample=Sample(user, item, rows) if pair and user and item else None,
        label=plan.labels[0],
        timestamp=timestamp,
        clock=read_clock(timestamp, shards, every=every, ticks=schema.ticks) if timestamp else None,
        drawn=drawn[0] if drawn else None,
        table_rows={
            name: cold.column("row")[-1].as_py() + 1 for name in ids if (cold := fitted.cold_keys(name)) is not None
        },
    )


def _counts(fitted: FittedPlan, column: str) -> npt.NDArray[np.int64]:
    """Return how often train has each value of a column's vocabulary."""
    found: npt.NDArray[np.int64] = fitted.vocabulary_of(column).column("count").to_numpy()
    return found


def _split(
    split: str,
    census: Census,
    look: CensusQuestion,
    counted: EtlCounts,
    counts: Mapping[str, npt.NDArray[np.int64]],
    fitted: FittedPlan,
) -> SplitFacts:
    if split == _TRAIN:
        roles = {"users": fitted.plan.user, "items": fitted.plan.item}
        found = {role: {"distinct": int(np.count_nonzero(counts[name])), "cold": 0} for role, name in roles.items()}
    else:
        found = {role: dict(distinct) for role, distinct in counted.cold.get(split, {}).items()}
    null = counted.missing.get(split, {}).get(look.label, {}).get("null", census.label.null)
    label = census.label.model_copy(update={"zeroed": max(0, null - census.label.null)})
    ends = look.clock.ends.get(split) if look.clock else None
    first, last = (None, None) if look.clock is None or ends is None else map(look.clock.seconds, ends)
    return SplitFacts(
        rows=counted.rows[split],
        drawn=census.drawn,
        users=Distinct(**found["users"]) if "users" in found else None,
        items=Distinct(**found["items"]) if "items" in found else None,
        label=label,
        first=first,
        last=last,
    )


def _missing(
    folder: Path, fitted: FittedPlan, counted: EtlCounts, census: Mapping[str, Census]
) -> dict[str, dict[str, MissingValues]]:
    """Say what is missing by column and split; columns of tables are counted as often as interactions point at them."""
    found: dict[str, dict[str, MissingValues]] = {}
    for split, columns in counted.missing.items():
        for name, values in columns.items():
            found.setdefault(name, {})[split] = MissingValues(**{"unseen": 0} | dict(values))
    star = fitted.schema("star")
    for split, one in census.items():
        for column, missing in in_tables(folder, star, one.ids):
            if counted.rows[split]:
                found.setdefault(column, {}).setdefault(split, missing)
    return {name: found[name] for name in star.names if name in found}


def _pairs(chosen: Sample | None, census: Mapping[str, Census]) -> RepeatedPairs | None:
    if chosen is None:
        return None
    return repetitions(chosen, {split: one.keys() for split, one in census.items()})


def _timeline(clock: Clock | None, census: Mapping[str, Census], splits: Mapping[str, SplitFacts]) -> Timeline | None:
    if clock is None:
        return None
    rows = {}
    for name in clock.ends:
        found = census[name].times
        if clock.every > 1:
            found = np.rint(found * ((splits[name].rows - splits[name].drawn) / max(found.sum(), 1))).astype(np.int64)
        rows[name] = tuple(found.tolist())
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


def _is_as_learnt(column: str, fitted: FittedPlan) -> bool:
    """Whether a column is as Categorify made it, not cut by an op after that: only then do its counts have to be those learnt."""
    writers = [step.op for step in fitted.program.steps if column in step.writes]
    return bool(writers) and column in writers[-1].encodes


def _is_of_train(column: Column, census: Mapping[str, Census], counts: Mapping[str, npt.NDArray[np.int64]]) -> bool:
    """Whether the counts that were learnt are those of the prepared rows of train."""
    return bool(np.array_equal(census[_TRAIN].ids[column.name][FIRST : known(column)], counts[column.name]))
