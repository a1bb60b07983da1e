"""Metrics of other packages: entry points of the group `recsys.metrics`, or trusted import paths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from recsys_cli import plugins
from recsys_cli.errors import ConfigError
from recsys_cli.metrics import BEYOND, GROUPED, IMPRESSION, OPTIONAL, POINTWISE, RANKING
from recsys_cli.metrics.checked import checked
from recsys_cli.metrics.metric import GroupedMetric, ListMetric, Metric, PointwiseMetric, RankingMetric

SAMPLED = "sampled_"
"""Prefix of ranking metrics over sampled candidates."""
LOSS = "loss"
"""Training objective: a monitored metric, not an evaluation metric."""
_KINDS = (PointwiseMetric, GroupedMetric, RankingMetric, ListMetric)
_M = TypeVar("_M", PointwiseMetric, GroupedMetric, RankingMetric, ListMetric)


def metric_of(name: str) -> Metric | None:
    """Return the metric of a result name such as `auc` or `sampled_ndcg@10`; see `metric_named`."""
    return metric_named(_base(name))


def metric_named(name: str) -> Metric | None:
    """Return a metric of this or another package by a name such as `ndcg`; None if unknown.

    Raises:
        ConfigError: The import path is not trusted, or not a metric.
    """
    builtin = POINTWISE.get(name) or GROUPED.get(name) or IMPRESSION.get(name) or RANKING.get(name) or BEYOND.get(name)
    return builtin or foreign(name)


def foreign(name: str) -> Metric | None:
    """Return an optional metric or that of another package by name; None if the name is not an import path or entry point.

    Raises:
        ConfigError: The import path is not trusted, or not a metric.
    """
    path = foreign_path(name)
    if path is None:
        return OPTIONAL.get(name)
    metric = plugins.load(path)
    if type(metric) not in _KINDS:
        kinds = ", ".join(kind.__name__ for kind in _KINDS)
        raise ConfigError(f"{path!r} is no metric: one of {kinds} of recsys_cli.metrics", hint="see docs/plugins.md")
    return checked(replace(metric, name=name))


def foreign_path(name: str) -> str | None:
    """Return the import path of a metric; None for a metric of this package.

    Raises:
        ConfigError: The import path is not trusted.
    """
    base = _base(name)
    is_builtin = any(
        base in table for table in (POINTWISE, GROUPED, IMPRESSION, RANKING, BEYOND, OPTIONAL)
    ) or base in {LOSS, ""}
    return None if is_builtin else plugins.resolve(base, what="metric")


def extended(builtin: Mapping[str, _M], names: Iterable[str]) -> dict[str, _M]:
    """Return the metrics of one type, followed by those of other packages of the same type and label task.

    Args:
        builtin: Metrics of this package, by name; not empty.
        names: Names of metrics or results.
    """
    like = next(iter(builtin.values()))
    others = (foreign(_base(name)) for name in names)
    return {**builtin, **{one.name: one for one in others if isinstance(one, type(like)) and _same_task(one, like)}}


def _same_task(one: Metric, other: Metric) -> bool:
    return getattr(one, "of_errors", None) == getattr(other, "of_errors", None)


def _base(name: str) -> str:
    return name.removeprefix(SAMPLED).partition("@")[0]
