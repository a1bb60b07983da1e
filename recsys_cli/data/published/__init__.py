"""The datasets that papers and vendors use, each by a declarative description, and one source for all."""

from __future__ import annotations

from collections.abc import Mapping

from recsys_cli.data.options import parse_options
from recsys_cli.data.published import given_splits, logs, reviews
from recsys_cli.data.published.source import Published
from recsys_cli.data.source import DatasetInfo, DatasetOptions

_FAMILIES = (
    logs.CLICKS, logs.SHOPS, logs.MIND, reviews.AMAZON, reviews.S3REC, logs.PLAYS, reviews.BOOK_CROSSING, reviews.STEAM,
    given_splits.DESCRIPTIONS,
)  # fmt: skip
DESCRIPTIONS = {description.name: description for family in _FAMILIES for description in family}


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
