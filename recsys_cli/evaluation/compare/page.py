"""The HTML page of a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from markupsafe import Markup

from recsys_cli.evaluation.compare.comparison import Comparison, Difference, Verdict
from recsys_cli.evaluation.compare.format import METHOD
from recsys_cli.metrics.named import ARROWS
from recsys_cli.page import Axis, IntervalBar, intervals, render

_COLOURS: Mapping[Verdict, int] = {"better": 1, "worse": 2, "noise": 5}
_NAMES = {"better": "better", "worse": "worse", "noise": "not significant"}


def show(comparison: Comparison) -> str:
    """Return the page as one self-contained HTML document."""
    return render(
        "compare.html.j2",
        package=__package__,
        comparison=comparison,
        method=METHOD,
        figures={label: differences(comparison, label) for label in comparison.others},
        head=["", "run", "value", f"difference from {comparison.against}", "95 % interval", "p", "p (Holm)", ""],
        rows=list(_rows(comparison)),
        runs=[[comparison.called(run.label), run.model, run.dataset, run.run, run.data] for run in comparison.runs],
        dataset=", ".join(dict.fromkeys(run.dataset for run in comparison.runs)),
    )


def differences(comparison: Comparison, label: str) -> Markup:
    """Plot a run's differences from the reference by metric; all runs share the axis."""
    ends = [end for figure in comparison.figures for one in figure.differences.values() for end in (one.low, one.high)]
    bars = [
        IntervalBar(figure.title, one.value, one.low, one.high, _COLOURS[one.verdict])
        for figure in comparison.figures
        for one in [figure.differences[label]]
    ]
    axis = Axis(
        f"{label} minus {comparison.against}, with 95 % confidence interval", low=min(*ends, 0.0), high=max(*ends, 0.0)
    )
    names = [(colour, _NAMES[verdict]) for verdict, colour in _COLOURS.items()]
    used = {one.color for one in bars}
    return intervals(
        f"{label} minus {comparison.against}", bars, x=axis, names=[one for one in names if one[0] in used]
    )


def _rows(comparison: Comparison) -> Iterator[list[str]]:
    for figure in comparison.figures:
        title = f"{figure.title} {ARROWS[figure.better]}".rstrip()
        yield [title, comparison.called(comparison.against), f"{figure.values[comparison.against]:.4f}", *[""] * 5]
        for label in comparison.others:
            one = figure.differences[label]
            yield ["", comparison.called(label), f"{figure.values[label]:.4f}", *written(one)]


def written(one: Difference) -> list[str]:
    """Return a difference for a table: value, interval, p, corrected p, verdict."""
    return [
        f"{one.value:+.4f}",
        f"{one.low:+.4f} to {one.high:+.4f}",
        probability(one.p),
        probability(one.p_holm),
        _NAMES[one.verdict],
    ]


def probability(p: float) -> str:
    """Format a p-value as in papers, with the bound `<0.001`."""
    return "<0.001" if p < 0.001 else f"{p:.3f}"
