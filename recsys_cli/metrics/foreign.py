"""Metrics of other packages: entry points of the group `recsys.metrics`, or trusted import paths.

Exceptions and wrong values of their functions become errors that name the metric. An undefined value is NaN, as in the
metrics of this package: the value of a pointwise or list metric, and the values of single users of a list metric.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import replace
from typing import Any, TypeVar

from recsys_cli import plugins
from recsys_cli.errors import ConfigError
from recsys_cli.metrics import BEYOND, GROUPED, IMPRESSION, OPTIONAL, POINTWISE, RANKING
from recsys_cli.metrics.metric import (
    Floats,
    GroupedMetric,
    ListMetric,
    Metric,
    PointwiseMetric,
    RankingMetric,
    ScoreCounts,
)
from recsys_cli.packages import np, npt

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
    return _checked(replace(metric, name=name))


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
    """Return the metrics of one type, followed by those of other packages of the same type and label task."""
    like = next(iter(builtin.values()))
    others = (foreign(_base(name)) for name in names)
    return {**builtin, **{one.name: one for one in others if isinstance(one, type(like)) and _same_task(one, like)}}


def _same_task(one: Metric, other: Metric) -> bool:
    return getattr(one, "of_errors", None) == getattr(other, "of_errors", None)


def _base(name: str) -> str:
    return name.removeprefix(SAMPLED).partition("@")[0]


def _checked(metric: PointwiseMetric | GroupedMetric | RankingMetric | ListMetric) -> Metric:
    """Return a metric whose exceptions and wrong values become errors that name it."""
    compute: Callable[..., Any] = metric.compute
    parts: dict[str, Callable[..., Any]]
    match metric:
        case PointwiseMetric():
            parts = {"compute": lambda counts: float(compute(counts)), **_of_rows(metric)}
        case GroupedMetric():
            parts = {"compute": lambda *rows: _pair(compute(*rows))}
        case RankingMetric():
            parts = {"compute": lambda hits, k: _vector(compute(hits, k), len(hits.num_relevant))}
        case ListMetric():
            parts = {"compute": lambda lists, k: _values(compute(lists, k), {(), (len(lists.num_relevant),)})}
    changes: dict[str, Any] = {
        part: plugins.guard(function, f"the metric {metric.name} ({part}) failed") for part, function in parts.items()
    }
    if isinstance(metric, PointwiseMetric) and metric.by_row is not None:
        changes["by_row"] = replace(metric.by_row, values=changes["by_row"])
    return replace(metric, **changes)


def _of_rows(metric: PointwiseMetric) -> dict[str, Callable[..., Any]]:
    """Return the checked functions of a pointwise metric besides `compute`."""
    parts, by_row = metric.parts, metric.by_row
    checked: dict[str, Callable[..., Any]] = {
        "influence": lambda counts: _pair(metric.influence(counts), len(counts.logits))
    }
    if parts is not None:

        def of_scores(counts: ScoreCounts) -> tuple[npt.NDArray[np.int64], Floats]:
            part, values = parts(counts)
            return _vector(part, len(counts.logits)).astype(np.int64), _vector(values)

        checked["parts"] = of_scores
    if by_row is not None:
        checked["by_row"] = lambda labels, scores: _vector(by_row.values(labels, scores), np.size(labels))
    return checked


def _pair(found: Any, size: int | None = None) -> tuple[Floats, Floats]:
    """Return two vectors of one size."""
    one, other = found
    one = _vector(one, size)
    return one, _vector(other, len(one))


def _vector(found: Any, size: int | None = None) -> Floats:
    """Return finite values of shape (size,); a `ValueError` for others."""
    values = _values(found, {(np.size(found) if size is None else size,)})
    if not np.isfinite(values).all():
        count = np.count_nonzero(~np.isfinite(values))
        raise ValueError(
            f"NaN or infinity in {count:,} of {values.size:,} values; a GroupedMetric leaves undefined users out, "
            "a ListMetric takes NaN for them"
        )
    return values


def _values(found: Any, shapes: Set[tuple[int, ...]]) -> Floats:
    """Return values in one of several shapes; a `ValueError` for others."""
    values = np.asarray(found)
    if values.dtype.kind not in "biuf" or values.shape not in shapes:
        expected = " or ".join(map(str, sorted(shapes, reverse=True)))
        raise ValueError(f"{values.dtype} of shape {values.shape}; expected: real numbers of shape {expected}")
    return values.astype(np.float64)
