"""The page of a comparison: the sentences, a figure of the differences from the first run, and every number behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from markupsafe import Markup

from recsys_cli.evaluation.compare.comparison import Comparison, Difference, Verdict
from recsys_cli.evaluation.compare.format import METHOD
from recsys_cli.metrics.named import ARROWS
from recsys_cli.page import Axis, IntervalBar, intervals, render

_COLOURS: Mapping[Verdict, int] = {"better": 1, "worse": 2, "noise": 5}
_NAMES = {"better": "better", "worse": "worse", "noise": "not significant"}


def show(found: Comparison) -> str:
    """Write the page as one HTML document that loads nothing."""
    return render(
        "compare.html.j2",
        package=__package__,
        found=found,
        method=METHOD,
        figures={label: differences(found, label) for label in found.others},
        head=["", "run", "value", f"difference from {found.against}", "95 % interval", "p", "p (Holm)", ""],
        rows=list(_rows(found)),
        runs=[[found.called(run.label), run.model, run.dataset, run.run, run.data] for run in found.runs],
        dataset=", ".join(dict.fromkeys(run.dataset for run in found.runs)),
    )


def differences(found: Comparison, label: str) -> Markup:
    """Draw how far a run is from the first one by all figures; all runs on the same axis.

    Args:
        found: The comparison.
        label: The run.
    """
    ends = [end for figure in found.figures for one in figure.differences.values() for end in (one.low, one.high)]
    drawn = [
        IntervalBar(figure.title, one.value, one.low, one.high, _COLOURS[one.verdict])
        for figure in found.figures
        for one in [figure.differences[label]]
    ]
    axis = Axis(f"{label} less {found.against}, with 95 % interval", low=min(*ends, 0.0), high=max(*ends, 0.0))
    names = [(colour, _NAMES[verdict]) for verdict, colour in _COLOURS.items()]
    there = {one.color for one in drawn}
    return intervals(f"{label} less {found.against}", drawn, x=axis, names=[one for one in names if one[0] in there])


def _rows(found: Comparison) -> Iterator[list[str]]:
    for figure in found.figures:
        title = f"{figure.title} {ARROWS[figure.better]}".rstrip()
        yield [title, found.called(found.against), f"{figure.values[found.against]:.4f}", "", "", "", "", ""]
        for label in found.others:
            one = figure.differences[label]
            yield ["", found.called(label), f"{figure.values[label]:.4f}", *written(one)]


def written(one: Difference) -> list[str]:
    """Write a difference for a table: value, interval, p, corrected p, verdict."""
    return [
        f"{one.value:+.4f}",
        f"{one.low:+.4f} to {one.high:+.4f}",
        probability(one.p),
        probability(one.p_holm),
        _NAMES[one.verdict],
    ]


def probability(p: float) -> str:
    """Write a p as papers do: below 0.001 its size says nothing more."""
    return "<0.001" if p < 0.001 else f"{p:.3f}"
