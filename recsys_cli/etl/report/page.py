"""The data report: facts as report.json, and their page as report.html."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from markupsafe import Markup

from recsys_cli.etl.engine import Executor
from recsys_cli.etl.report.facts import Distinct, Facts, Frequency, LabelFacts, RepeatedPairs, SplitFacts, conclude
from recsys_cli.etl.report.queries import EtlCounts, gather_facts
from recsys_cli.features.split import SPLITS, TRAIN
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.page import Axis, Headline, LineSeries, chart, is_date, moment, render, share

_TRAIN = SPLITS[TRAIN]
Row = list[str]


def write_report(folder: Path, fitted: FittedPlan, counted: EtlCounts, executor: Executor) -> Facts:
    """Write the report of prepared data."""
    facts = gather_facts(folder, fitted, counted, executor)
    facts = facts.model_copy(update={"findings": conclude(facts)})
    (folder / "report.json").write_text(facts.model_dump_json(indent=1, exclude_defaults=True) + "\n", encoding="utf-8")
    (folder / "report.html").write_text(show(facts), encoding="utf-8")
    return facts


def timeline(facts: Facts) -> Markup:
    """Draw the number of rows over time, by split."""
    histogram = facts.timeline
    if histogram is None:
        return Markup("")
    middles = [sum(edges) / 2 for edges in pairwise(histogram.edges)]
    marks = [LineSeries(middles, heights, name=split) for split, heights in histogram.rows.items()]
    dated = is_date(histogram.edges[0], histogram.edges[-1])
    axis = Axis("time", kind="time") if dated else Axis("time, in the unit of the data")
    return chart("Rows over time", marks, x=axis, y=Axis("rows", low=0))


def show(facts: Facts) -> str:
    """Return the data report as a self-contained HTML document."""
    splits = {name: split for name, split in facts.splits.items() if split.rows}
    return render(
        "data.html.j2",
        package=__package__,
        facts=facts,
        splits=splits,
        headlines=_headlines(facts),
        split_rows=[_split(name, split, sum(s.rows for s in splits.values())) for name, split in splits.items()],
        border_rows=list(_borders(facts)),
        pair_rows=list(_repeated(facts.pairs)),
        copy_rows=list(_repeated(facts.copies)),
        target_rows=list(_targets(facts)),
        tie_rows=list(_ties(facts)),
        op_rows=list(_ops(facts)),
        missing_head=["", *(f"{kind} in {split}" for split in splits for kind in ("null", "unseen"))],
        missing_rows=list(_missing(facts, list(splits))),
        frequency_rows=list(_frequency(facts)),
        timeline=timeline(facts),
    )


def _headlines(facts: Facts) -> list[Headline]:
    rows = sum(split.rows for split in facts.splits.values())
    headlines = [
        Headline("rows", _count(rows), f"of all splits, {share(facts.splits[_TRAIN].rows, rows)} of them train")
    ]
    for title, frequency in (("users", facts.users), ("items", facts.items)):
        if frequency is not None:
            remark = f"of train, {frequency.median:g} rows each at the median"
            headlines.append(Headline(title, _count(frequency.distinct), remark))
    if facts.items is not None:
        headlines.append(
            Headline("head", f"{100 * facts.items.head['0.1']:.3g} %", "of the rows have the top 10 % of items")
        )
    return headlines


def _split(name: str, split: SplitFacts, total: int) -> Row:
    cells = [name, _count(split.rows), share(split.rows, total)]
    for distinct in (split.users, split.items):
        cells += [_count(distinct.distinct) if distinct else "–", "" if name == _TRAIN else _cold(distinct)]
    ends = [moment(end) if end is not None else "–" for end in (split.first, split.last)]
    return [*cells, _label(split.label), *ends]


def _cold(distinct: Distinct | None) -> str:
    if distinct is None or not distinct.distinct:
        return "–"
    return f"{_count(distinct.cold)} ({share(distinct.cold, distinct.distinct)})" if distinct.cold else "0"


def _label(label: LabelFacts) -> str:
    if label.mean is None:
        return "none"
    return (
        f"{100 * label.mean:.2f} % ones" if label.binary else f"mean {label.mean:.4g} ({label.low:g} – {label.high:g})"
    )


def _borders(facts: Facts) -> Iterator[Row]:
    for border in facts.borders:
        if not border.after and not border.tied:
            continue
        rows = facts.splits[border.earlier].rows - facts.splits[border.earlier].drawn
        yield [
            f"{border.earlier} → {border.later}",
            f"{_count(border.after)} ({share(border.after, rows)})",
            _count(border.tied),
        ]


def _repeated(pairs: RepeatedPairs | None) -> Iterator[Row]:
    if pairs is None:
        return
    for split, rows in pairs.rows.items():
        if pairs.repeated[split]:
            yield [f"{split}, again in {split}", *_part(pairs.repeated[split], rows)]
        for earlier, seen in pairs.seen.get(split, {}).items():
            if seen:
                yield [f"{split}, already in {earlier}", *_part(seen, rows)]


def _targets(facts: Facts) -> Iterator[Row]:
    for split, target in facts.targets.items():
        if target.with_item:
            yield [split, *_part(target.with_item, target.users)]


def _ties(facts: Facts) -> Iterator[Row]:
    for split, ties in facts.ties.items():
        tests = [ties.orders.get(name) for name in ("value", "position")]
        shown = [f"{one.mean:.3f} [{one.low:.3f}, {one.high:.3f}]" if one else "–" for one in tests]
        yield [split, *_part(ties.tied, ties.targets), f"[{100 * ties.low:.1f}, {100 * ties.high:.1f}]", *shown]


def _part(part: int, whole: int) -> Row:
    return [_count(part), _count(whole), share(part, whole)]


def _ops(facts: Facts) -> Iterator[Row]:
    for op in facts.ops:
        change = op.rows_out - op.rows_in
        relative = f"{100 * change / max(op.rows_in, 1):+.3g} %" if change else ""
        yield [op.op, ", ".join(op.columns), _count(op.rows_in), _count(op.rows_out), relative]


def _missing(facts: Facts, splits: list[str]) -> Iterator[Row]:
    for column, by_split in facts.missing.items():
        cells = [column]
        for split in splits:
            one = by_split.get(split)
            if one is None or not one.values:
                cells += ["–", "–"]
            else:
                cells += [share(count, one.values) for count in (one.null, one.unseen)]
        if any(one.null or one.unseen for one in by_split.values()):
            yield cells


def _frequency(facts: Facts) -> Iterator[Row]:
    by_role: Mapping[str, Frequency | None] = {"items": facts.items, "users": facts.users}
    for role, one in by_role.items():
        if one is not None:
            heads = [f"{100 * part:.3g} %" for part in one.head.values()]
            counts = [_count(one.least), f"{one.median:,g}", _count(one.most), _count(one.once)]
            yield [role, _count(one.distinct), *heads, *counts]


def _count(number: int) -> str:
    return f"{number:,}"
