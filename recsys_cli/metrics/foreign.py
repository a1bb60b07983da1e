"""Metrics of other packages: by an entry point of the group `recsys.metrics`, or by a trusted import path."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from recsys_cli import plugins
from recsys_cli.errors import ConfigError
from recsys_cli.metrics import BEYOND, GROUPED, POINTWISE, RANKING
from recsys_cli.metrics.metric import GroupedMetric, ListMetric, Metric, PointwiseMetric, RankingMetric

SAMPLED = "sampled_"
"""Prefix of figures over sampled candidates."""
LOSS = "loss"
"""What a model minimises: no metric of evaluation, and a figure that one may go by all the same."""
_KINDS = (PointwiseMetric, GroupedMetric, RankingMetric, ListMetric)
_M = TypeVar("_M", PointwiseMetric, GroupedMetric, RankingMetric, ListMetric)


def metric_of(figure: str) -> Metric | None:
    """Return the metric of a figure such as `auc` or `sampled_ndcg@10`; see `metric_named`."""
    return metric_named(_base(figure))


def metric_named(name: str) -> Metric | None:
    """Return the metric with a name such as `ndcg`, of this package or another; None where there is none.

    Raises:
        ConfigError: The metric is code of another package that is not trusted, or that is no metric.
    """
    known = POINTWISE.get(name) or GROUPED.get(name) or RANKING.get(name) or BEYOND.get(name)
    return known or foreign(name)


def foreign(name: str) -> Metric | None:
    """Return the metric of another package with a name; None where the name leads to no package.

    Raises:
        ConfigError: It is not trusted, or no metric.
    """
    path = foreign_path(name)
    if path is None:
        return None
    found = plugins.load(path)
    if type(found) not in _KINDS:
        kinds = ", ".join(kind.__name__ for kind in _KINDS)
        raise ConfigError(f"{path!r} is no metric: one of {kinds} of recsys_cli.metrics", hint="see docs/security.md")
    return replace(found, name=name)


def foreign_path(figure: str) -> str | None:
    """Return the import path of a figure's metric; None for a metric of this package.

    Raises:
        ConfigError: The import path is not trusted.
    """
    name = _base(figure)
    is_own = any(name in table for table in (POINTWISE, GROUPED, RANKING, BEYOND)) or name in {LOSS, ""}
    return None if is_own else plugins.resolve(name, what="metric")


def extended(known: Mapping[str, _M], figures: Iterable[str]) -> dict[str, _M]:
    """Return known metrics of one kind, followed by the foreign metrics of the same kind.

    Args:
        known: Metrics of this package, by name; not empty.
        figures: Names of figures or metrics.
    """
    like = next(iter(known.values()))
    others = (foreign(_base(figure)) for figure in figures)
    return {**known, **{one.name: one for one in others if isinstance(one, type(like)) and _goes_with(one, like)}}


def _goes_with(one: Metric, other: Metric) -> bool:
    return getattr(one, "of_errors", None) == getattr(other, "of_errors", None)


def _base(figure: str) -> str:
    return figure.removeprefix(SAMPLED).partition("@")[0]
