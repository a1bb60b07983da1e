"""A template and its values to one HTML document; the page's frame, style and macros are in `page.html.j2`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined


def render(template: str, *, package: str, **values: Any) -> str:
    """Write a page as one HTML document that loads nothing.

    Args:
        template: File with the template, which extends `page.html.j2`.
        package: The package that it lies in.
        values: What the template shows; text is escaped. `today` is the date, in UTC.
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
