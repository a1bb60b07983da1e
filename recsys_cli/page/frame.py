"""SVG primitives of all figures; colors are classes of the page's style."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup

WIDTH = 400
"""Width of a figure in units; figures scale to the available width, including their text."""
LETTER = 6.4
"""Approximate width of a character in units."""
_COLORS = 6


def series(number: int) -> str:
    """Return the color class of a series, counted from 1."""
    return f"s{(number - 1) % _COLORS + 1}"


def figure(title: str, *, height: float, parts: Iterable[Markup], names: Iterable[tuple[str, str]]) -> Markup:
    """Return a figure: the legend as HTML, the rest as SVG.

    `names` are class (see `series`) and name of each series; those without a name are not in the legend.
    """
    legend = Markup("").join(Markup('<span class="{}">{}</span>').format(kind, name) for kind, name in names if name)
    head = Markup('<div class="legend">{}</div>').format(legend) if legend else Markup("")
    view, body = f"0 0 {WIDTH} {coordinate(height)}", Markup("").join(parts)
    return head + Markup('<svg class="chart" viewBox="{}" role="img" aria-label="{}">{}</svg>').format(
        view, title, body
    )


def text(words: str, x: float, y: float, *, anchor: str = "start", kind: str = "") -> Markup:
    """Return a text at a point; `kind` is a class of the page's style."""
    return Markup('<text x="{}" y="{}" text-anchor="{}"{}>{}</text>').format(
        coordinate(x), coordinate(y), anchor, Markup(' class="{}"').format(kind) if kind else "", words
    )


def line(kind: str, points: Iterable[float]) -> Markup:
    """Return a line from (x1, y1) to (x2, y2)."""
    x1, y1, x2, y2 = map(coordinate, points)
    return Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(kind, x1, y1, x2, y2)


def box(kind: str, points: Iterable[float], *, hint: str) -> Markup:
    """Return a rectangle from (x1, y1) to (x2, y2) with a tooltip."""
    x1, y1, x2, y2 = points
    return Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>').format(
        kind, coordinate(x1), coordinate(y1), coordinate(max(x2 - x1, 0)), coordinate(max(y2 - y1, 0)), hint
    )


def coordinate(value: float) -> str:
    """Format a coordinate, rounded to a tenth of a unit."""
    return f"{value:.1f}".removesuffix(".0")


def widest(labels: Iterable[str]) -> float:
    """Return the approximate width of the longest label in units."""
    return LETTER * max((len(label) for label in labels), default=0)
