"""Metrics of other packages: entry points of the group `recsys.metrics`, or trusted import paths.

Exceptions, types and shapes of their functions become errors that name the metric. An undefined value is NaN, as in the
metrics of this package: the value of a pointwise or list metric, and the values of single users of a list metric.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from recsys_cli import plugins
from recsys_cli.errors import ConfigError
from recsys_cli.metrics import BEYOND, GROUPED, IMPRESSION, OPTIONAL, POINTWISE, RANKING
from recsys_cli.metrics.metric import Floats, GroupedMetric, ListMetric, Metric, PointwiseMetric, RankingMetric

SAMPLED = "sampled_"
"""Prefix of ranking metrics over sampled candidates."""
LOSS = "loss"
"""Training objective: a monitored metric, not an evaluation metric."""
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
    if type(metric) not in _VALUES:
        kinds = ", ".join(kind.__name__ for kind in _VALUES)
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


@dataclass(frozen=True)
class _Values:
    """Expected values of a metric's function.

    Attributes:
        expected: The values in words.
        shapes: From the arguments to the valid shapes of each value, in order; None for any vector.
        finite: Whether NaN and infinity are errors.
    """

    expected: str
    shapes: Callable[..., list[list[tuple[int, ...] | None]]]
    finite: bool = True


_VALUES: dict[type, dict[str, _Values]] = {
    PointwiseMetric: {
        "compute": _Values("one value", lambda _counts: [[()]], finite=False),
        "influence": _Values(
            "influences of positive and negative rows, each of shape (G,) for G scores",
            lambda counts: [[counts.logits.shape]] * 2,
        ),
        "parts": _Values(
            "the part of each score, of shape (G,), and the B parts, of shape (B,)",
            lambda counts: [[counts.logits.shape], [None]],
        ),
        "by_row": _Values("shape (N,) for N rows", lambda labels, _scores: [[np.shape(labels)]]),
    },
    GroupedMetric: {
        "compute": _Values(
            "values and weights, both of shape (G,) for G users with a defined value", lambda *_rows: [[None]] * 2
        )
    },
    RankingMetric: {
        "compute": _Values("shape (U,) for U users", lambda hits, _k: [[hits.num_relevant.shape]]),
    },
    ListMetric: {
        "compute": _Values(
            "shape (U,) for U users or one value", lambda lists, _k: [[lists.num_relevant.shape, ()]], finite=False
        )
    },
}


def _checked(metric: Metric) -> Metric:
    """Return a metric with guarded functions and checked values."""
    changes: dict[str, Any] = {}
    for part, values in _VALUES[type(metric)].items():
        if (function := getattr(metric, part)) is not None:
            title = f"the metric {metric.name} ({part})"
            by_row = part == "by_row"
            call = _guarded(function.values if by_row else function, values, title)
            changes[part] = replace(function, values=call) if by_row else call
    return replace(metric, **changes)


def _guarded(function: Callable[..., Any], values: _Values, title: str) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        shapes = values.shapes(*arguments)
        with plugins.guarded(f"{title} failed", hint=plugins.FIX_PLUGIN):
            found = function(*arguments)
        if len(shapes) == 1:
            array = _numbers(found, shapes[0], values, title)
            return float(array) if shapes == [[()]] else array
        if not isinstance(found, tuple) or len(found) != len(shapes):
            raise ConfigError(f"{title} returns {type(found).__name__}; expected: a tuple of {values.expected}")
        arrays = [_numbers(each, valid, values, title) for each, valid in zip(found, shapes, strict=True)]
        if shapes == [[None]] * 2 and arrays[0].shape != arrays[1].shape:
            _numbers(arrays[1], [arrays[0].shape], values, title)
        return (arrays[0].astype(np.int64), arrays[1]) if title.endswith("(parts)") else tuple(arrays)

    return call


def _numbers(found: object, valid: list[tuple[int, ...] | None], values: _Values, title: str) -> Floats:
    """Return a value as an array of float64.

    Raises:
        ConfigError: The value is no array of real numbers, of another shape, or not finite.
    """
    with plugins.guarded(f"{title} failed", hint=plugins.FIX_PLUGIN):
        array = np.asarray(found)
    shapes = [(array.size,) if shape is None else shape for shape in valid]
    if array.dtype.kind not in "biuf" or array.shape not in shapes:
        shape = f"shape {array.shape}" if array.shape else "one value"
        here = " or ".join(str(each) if each else "one value" for each in shapes)
        raise ConfigError(
            f"{title} returns {array.dtype}, {shape}; expected: real numbers, {values.expected}, here {here}"
        )
    if values.finite and not np.isfinite(array).all():
        count = np.count_nonzero(~np.isfinite(array))
        raise ConfigError(
            f"{title} returns NaN or infinity in {count:,} of {array.size:,} values; expected: {values.expected}, finite",
            hint="leave undefined users out of a GroupedMetric; a ListMetric takes NaN for them",
        )
    return array.astype(np.float64)
