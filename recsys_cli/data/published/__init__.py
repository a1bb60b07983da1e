"""The datasets that papers and vendors use, each by a declarative description, and one source for all."""

from __future__ import annotations

from collections.abc import Mapping

from recsys_cli.data.options import parse_options
from recsys_cli.data.published import amazon, book_crossing, clicks, given_splits, mind, plays, s3rec, shops, steam
from recsys_cli.data.published.source import Published
from recsys_cli.data.source import DatasetInfo, DatasetOptions

_FAMILIES = (clicks, shops, mind, amazon, s3rec, plays, book_crossing, steam, given_splits)
DESCRIPTIONS = {description.name: description for family in _FAMILIES for description in family.DESCRIPTIONS}


def info(name: str) -> DatasetInfo:
    """Return the catalog entry of a published dataset."""
    return DESCRIPTIONS[name].info


def options(name: str) -> DatasetOptions:
    """Return the options: the selectable parts, if any."""
    return DatasetOptions(DESCRIPTIONS[name].options)


def source(name: str, options: Mapping[str, object]) -> Published:
    """Open a published dataset.

    Raises:
        ConfigError: An option is invalid.
    """
    description = DESCRIPTIONS[name]
    return Published(description, parse_options(description.options, options, dataset=name))
