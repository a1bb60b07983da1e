"""Renders a template to one HTML document; layout, style and macros are in `page.html.j2`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined


def render(template: str, *, package: str, **values: Any) -> str:
    """Render a self-contained HTML document.

    Args:
        template: File name of the template; it extends `page.html.j2`.
        package: Package of the template.
        values: Variables of the template; text is escaped. `today` (the UTC date) is set here.
    """
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package, package_path=""), PackageLoader(__package__, package_path="")]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    page: str = environment.get_template(template).render(values, today=f"{datetime.now(UTC):%Y-%m-%d}")
    return page
