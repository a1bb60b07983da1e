"""The figures of the data report."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup

from recsys_cli.etl.report.facts import Facts, Frequency, MissingValues
from recsys_cli.page import Axis, BarGroup, Histogram, LineSeries, bars, chart, is_date

_MOST_BARS = 24


def timeline(facts: Facts) -> Markup:
    """Draw the histogram of rows over time, by split."""
    histogram = facts.timeline
    if histogram is None:
        return Markup("")
    marks = [Histogram(histogram.edges, heights, name=split) for split, heights in histogram.rows.items()]
    dated = is_date(histogram.edges[0], histogram.edges[-1])
    axis = Axis("time", kind="time") if dated else Axis("time, in the unit of the data")
    return chart("Rows over time", marks, x=axis, y=Axis("rows", low=0))


def rows(facts: Facts) -> Markup:
    """Draw the number of rows after each op; empty if no op changes it."""
    if all(op.rows_in == op.rows_out for op in facts.ops):
        return Markup("")
    changing = [op for op in facts.ops if op.rows_in != op.rows_out]
    names = ["read", *(op.op for op in changing)]
    left = [float(facts.ops[0].rows_in), *(float(op.rows_out) for op in changing)]
    return bars("Rows after each op", names, [BarGroup("", left)], x=Axis("rows"))


def growth(facts: Facts, names: list[str]) -> Markup:
    """Draw the expected share of each vocabulary by number of rows."""
    curves = {name: facts.growth[name] for name in names}
    marks = [LineSeries(c.rows, [value / c.values[-1] for value in c.values], name=name) for name, c in curves.items()]
    return chart("Vocabulary growth", marks, x=Axis("rows of train read", low=0), y=Axis("values seen", "share", 0, 1))


def popularity(items: Frequency) -> Markup:
    """Draw the number of rows of items by rank."""
    mark = LineSeries(items.ranks, items.counts, markers=len(items.ranks) < 30)
    return chart("Popularity curve", [mark], x=Axis("rank of the item", "log"), y=Axis("rows of train", "log"))


def activity(users: Frequency) -> Markup:
    """Draw the histogram of the number of rows of users."""
    mark = Histogram(users.edges, users.heights)
    return chart("Activity", [mark], x=Axis("rows of train", "log"), y=Axis("users", low=0))


def cold(facts: Facts) -> Markup:
    """Draw the share of cold-start users and items of the held-out splits."""
    held_out = {name: split for name, split in facts.splits.items() if split.rows and name != "train"}
    groups = []
    for role in ("users", "items"):
        by_split = [getattr(split, role) for split in held_out.values()]
        groups.append(BarGroup(role, [one.cold / one.distinct if one and one.distinct else None for one in by_split]))
    return bars("Cold-start users and items", list(held_out), groups, x=Axis("share absent from train", "share"))


def missing(facts: Facts) -> Markup:
    """Draw the share of null and unseen values by column, the largest first."""
    splits = [name for name, split in facts.splits.items() if split.rows]
    shares = {name: _shares(by_split, splits) for name, by_split in facts.missing.items()}
    names = [name for name in sorted(shares, key=lambda name: -max(shares[name], default=0)) if max(shares[name]) > 0]
    names = names[:_MOST_BARS]
    groups = [BarGroup(split, [shares[name][position] for name in names]) for position, split in enumerate(splits)]
    return bars("Null and unseen values", names, groups, x=Axis("share of null and unseen values", "share"))


def _shares(by_split: Mapping[str, MissingValues], splits: list[str]) -> list[float]:
    ordered = [by_split.get(split) for split in splits]
    return [(one.null + one.unseen) / one.values if one and one.values else 0.0 for one in ordered]
