"""Self-contained HTML pages with embedded style and SVG figures, hand-written for speed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from recsys_cli.page.charts import Axis, IntervalBar, LineSeries, chart, day, intervals, is_date, moment, share

__all__ = [
    "Axis", "Headline", "IntervalBar", "LineSeries", "chart", "day", "intervals", "is_date", "moment", "render", "share",
    "stacked",
]  # fmt: skip


@dataclass(frozen=True)
class Headline:
    """A key figure at the top of a page; `is_lost` marks a value worse than that of the remark."""

    title: str
    value: str
    remark: str
    is_lost: bool = False


def stacked(text: str, remark: str, *, is_best: bool = False) -> str:
    """Return a table cell with a small remark beside or below its text, bold if it is the best of its row."""
    cell = Markup('{}<span class="interval">{}</span>').format(text, remark) if remark else Markup.escape(text)
    return Markup("<b>{}</b>").format(cell) if is_best else cell


def render(template: str, *, package: str, **values: Any) -> str:
    """Render a self-contained HTML document from a package's template, which extends `page.html.j2`.

    Values are escaped; `today` is the UTC date.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package, package_path=""), PackageLoader(__package__, package_path="")]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    page: str = environment.get_template(template).render(values, today=f"{datetime.now(UTC):%Y-%m-%d}")
    return page
