"""What all figures share: the SVG element, the legend, numbers as coordinates; colours are classes that the page's style fills."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup

WIDTH = 400
"""Units of a figure's width; it is drawn as wide as there is room, so text grows with it."""
LETTER = 6.4
"""About how many units a letter of a label is wide."""
_COLOURS = 6


def series(number: int) -> str:
    """Return the class that gives the colour of a series, counted from 1."""
    return f"s{(number - 1) % _COLOURS + 1}"


def figure(title: str, *, height: float, parts: Iterable[Markup], names: Iterable[tuple[str, str]]) -> Markup:
    """Put a figure together: the legend as text of the page, the rest as SVG.

    Args:
        title: What a reader who cannot see it is told.
        height: Units of its height.
        parts: SVG elements.
        names: Class (see `series`) and name of each series; one without a name stands in no legend.
    """
    legend = Markup("").join(Markup('<span class="{}">{}</span>').format(kind, name) for kind, name in names if name)
    head = Markup('<div class="legend">{}</div>').format(legend) if legend else Markup("")
    view, body = f"0 0 {WIDTH} {place(height)}", Markup("").join(parts)
    return head + Markup('<svg class="chart" viewBox="{}" role="img" aria-label="{}">{}</svg>').format(
        view, title, body
    )


def text(words: str, x: float, y: float, *, anchor: str = "start", kind: str = "") -> Markup:
    """Write words at a point; `kind` is a class of the page's style."""
    return Markup('<text x="{}" y="{}" text-anchor="{}"{}>{}</text>').format(
        place(x), place(y), anchor, Markup(' class="{}"').format(kind) if kind else "", words
    )


def line(kind: str, points: Iterable[float]) -> Markup:
    """Draw a straight line from (x1, y1) to (x2, y2)."""
    x1, y1, x2, y2 = map(place, points)
    return Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(kind, x1, y1, x2, y2)


def box(kind: str, points: Iterable[float], *, hint: str) -> Markup:
    """Draw a rectangle from (x1, y1) to (x2, y2), whose hint shows where one points at it."""
    x1, y1, x2, y2 = points
    return Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>').format(
        kind, place(x1), place(y1), place(max(x2 - x1, 0)), place(max(y2 - y1, 0)), hint
    )


def place(value: float) -> str:
    """Write a coordinate: a tenth of a unit is finer than anyone sees."""
    return f"{value:.1f}".removesuffix(".0")


def widest(labels: Iterable[str]) -> float:
    """Return about how many units the longest label takes."""
    return LETTER * max((len(label) for label in labels), default=0)
