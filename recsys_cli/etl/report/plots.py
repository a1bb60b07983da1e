"""Which figures the data report shows, and what stands on their axes."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup

from recsys_cli.etl.report.facts import Facts, Frequency, Growth, MissingValues
from recsys_cli.page import Axis, BarGroup, Histogram, LineSeries, bars, chart, is_date

_MOST_BARS = 24


def timeline(facts: Facts) -> Markup:
    """Draw when the rows of each split are from."""
    found = facts.timeline
    if found is None:
        return Markup("")
    marks = [Histogram(found.edges, heights, name=split) for split, heights in found.rows.items()]
    dated = is_date(found.edges[0], found.edges[-1])
    axis = Axis("time", kind="time") if dated else Axis("time, as the data has it")
    return chart("Rows over time", marks, x=axis, y=Axis("rows", low=0))


def rows(facts: Facts) -> Markup:
    """Draw how many rows each op leaves; nothing where none changes their number."""
    if all(op.rows_in == op.rows_out for op in facts.ops):
        return Markup("")
    changing = [op for op in facts.ops if op.rows_in != op.rows_out]
    names = ["read", *(op.op for op in changing)]
    left = [float(facts.ops[0].rows_in), *(float(op.rows_out) for op in changing)]
    return bars("Rows after each op", names, [BarGroup("", left)], x=Axis("rows"))


def growth(facts: Facts, names: list[str]) -> Markup:
    """Draw how much of each vocabulary is seen after so many rows."""
    marks = [_grown(name, facts.growth[name]) for name in names]
    return chart("Vocabulary growth", marks, x=Axis("rows of train read", low=0), y=Axis("values seen", "share", 0, 1))


def _grown(name: str, found: Growth) -> LineSeries:
    return LineSeries(found.rows, [value / found.values[-1] for value in found.values], name=name)


def popularity(found: Frequency) -> Markup:
    """Draw how many rows items have, by their rank."""
    mark = LineSeries(found.ranks, found.counts, markers=len(found.ranks) < 30)
    return chart("Popularity curve", [mark], x=Axis("rank of the item", "log"), y=Axis("rows of train", "log"))


def activity(found: Frequency) -> Markup:
    """Draw how many users have how many rows."""
    mark = Histogram(found.edges, found.heights)
    return chart("Activity", [mark], x=Axis("rows of train", "log"), y=Axis("users", low=0))


def cold(facts: Facts) -> Markup:
    """Draw which share of a held-out split's users and items train does not know."""
    held_out = {name: split for name, split in facts.splits.items() if split.rows and name != "train"}
    groups = []
    for role in ("users", "items"):
        found = [getattr(split, role) for split in held_out.values()]
        groups.append(BarGroup(role, [one.cold / one.distinct if one and one.distinct else None for one in found]))
    return bars("Cold users and items", list(held_out), groups, x=Axis("share that train does not know", "share"))


def missing(facts: Facts) -> Markup:
    """Draw shares of nulls and of unseen values, the columns with most of them first."""
    splits = [name for name, split in facts.splits.items() if split.rows]
    shares = {name: _shares(by_split, splits) for name, by_split in facts.missing.items()}
    names = [name for name in sorted(shares, key=lambda name: -max(shares[name], default=0)) if max(shares[name]) > 0]
    names = names[:_MOST_BARS]
    groups = [BarGroup(split, [shares[name][position] for name in names]) for position, split in enumerate(splits)]
    return bars("Null and unseen values", names, groups, x=Axis("share that is null or unseen", "share"))


def _shares(by_split: Mapping[str, MissingValues], splits: list[str]) -> list[float]:
    found = [by_split.get(split) for split in splits]
    return [(one.null + one.unseen) / one.values if one and one.values else 0.0 for one in found]
