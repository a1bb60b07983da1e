"""Features of the columns without a role: ops by type and cardinality, and those left out because they tell the outcome."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa

from recsys_cli.detect.names import words
from recsys_cli.detect.profiles import Profile
from recsys_cli.detect.roles import ENOUGH, positive_text, roles
from recsys_cli.metrics.labels import auc
from recsys_cli.metrics.metric import ScoreCounts

if TYPE_CHECKING:
    from recsys_cli.detect.tables import Table

_FEW_VALUES = 50
_LONGEST = 60
_SKEWED = 100
_ID_WORDS = frozenset({"id", "code", "type", "category", "zip", "zipcode", "year"})


@dataclass(frozen=True)
class FeatureColumns:
    """Columns by treatment."""

    categories: tuple[str, ...] = ()
    skewed: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    vectors: tuple[str, ...] = ()
    lists: dict[str, str] = field(default_factory=dict)

    @property
    def used(self) -> tuple[str, ...]:
        """Columns that become features."""
        return (*self.categories, *self.skewed, *self.numbers, *self.vectors)


def treatments(columns: Iterable[Profile]) -> FeatureColumns:
    """Return the columns by treatment; `lists` has the separators of text lists among the categories."""
    found: dict[str, list[Profile]] = {"categories": [], "skewed": [], "numbers": [], "vectors": []}
    for one in columns:
        if not _is_useless(one):
            found[_treatment(one)].append(one)
    lists = {one.name: one.separator for one in found["categories"] if one.separator is not None}
    return FeatureColumns(**{name: tuple(one.name for one in some) for name, some in found.items()}, lists=lists)


def _treatment(one: Profile) -> str:
    if one.width is not None:
        return "vectors"
    is_code = one.kind == "integer" and (one.unique <= _FEW_VALUES or bool(_ID_WORDS & set(words(one.name))))
    if is_code or not one.is_numeric:
        return "categories"
    return "skewed" if (one.high or 0) > _SKEWED and (one.low or 0) >= -_SKEWED / 10 else "numbers"


def _is_useless(one: Profile) -> bool:
    if one.kind in {"empty", "time"} or one.width == 0 or (one.unique <= 1 and one.kind != "list"):
        return True
    is_row_id = one.kind == "text" and not one.is_list and one.unique > 0.9 * one.filled and one.rows >= ENOUGH
    return is_row_id or (one.kind == "text" and one.length > _LONGEST) or (one.kind == "integer" and one.is_key)


def number_ops(found: FeatureColumns) -> list[tuple[dict[str, Any], str]]:
    """Return the ops of numbers and vectors, with comments."""
    ops: list[tuple[dict[str, Any], str]] = []
    if numbers := [*found.skewed, *found.numbers]:
        ops.append(({"op": "FillMissing", "columns": numbers, "fill_val": 0}, ""))
        if found.skewed:
            ops += [
                ({"op": "Clip", "columns": list(found.skewed), "min_value": 0}, ""),
                ({"op": "LogOp", "columns": list(found.skewed)}, "numbers over several orders of magnitude"),
            ]
        ops.append(({"op": "Normalize", "columns": numbers}, "mean 0 and variance 1 in train"))
    if found.vectors:
        ops.append(({"op": "ValueCount", "columns": list(found.vectors)}, "the length of the vectors"))
    return ops


SEPARATES, STRONG = 0.95, 0.9
"""Least AUC of a column left out of the features, and of one with a note."""
_ENOUGH = 20
"""Rows of each class below which an AUC of this size may be chance."""
_PRIOR_ROWS = 2


def strong_columns(rows: pa.Table, label: Profile, columns: Iterable[Profile]) -> dict[str, float]:
    """Return the AUC of each column with a strong prediction of the label, by its values or its nulls; best first."""
    answers = _labels(rows, label)
    if min(int(answers.sum()), int((1 - answers).sum())) < _ENOUGH:
        return {}
    found = {one.name: _auc_of(pl.Series(pl.from_arrow(rows.column(one.name))), one, answers) for one in columns}
    return {name: found[name] for name in sorted(found, key=lambda name: -found[name]) if found[name] >= STRONG}


def separating(found: Mapping[str, float]) -> dict[str, float]:
    """Return the columns with a near separation of the label."""
    return {name: value for name, value in found.items() if value >= SEPARATES}


def with_times_before(table: Table) -> Table:
    """Return the table without the role of a time of one label only, such as the time of a click."""
    label, time = table.of("label"), table.of("timestamp")
    if label is None or time is None or not time.nulls or table.roles["timestamp"].reason == "given":
        return table
    if time.name not in separating(strong_columns(table.sample.rows, label, [time])):
        return table
    rest = {name: one for name, one in table.columns.items() if name != time.name}
    kept = {name: role for name, role in table.roles.items() if name != "timestamp"}
    other = roles(rest, {name: role.column for name, role in kept.items()}).get("timestamp")
    return replace(table, roles={**kept, **({"timestamp": other} if other else {})})


def _labels(rows: pa.Table, label: Profile) -> np.ndarray:
    values = pl.Series(pl.from_arrow(rows.column(label.name)))
    wanted = positive_text(label)
    positive = values.cast(pl.Float64) > 0 if wanted is None else values.cast(pl.String) == wanted
    return positive.fill_null(value=False).to_numpy().astype(np.float32)


def _auc_of(values: pl.Series, one: Profile, answers: np.ndarray) -> float:
    found = [_either_way(answers, values.is_null().to_numpy().astype(np.float64))] if one.nulls else []
    if one.is_numeric:
        numbers = values.cast(pl.Float64).fill_nan(None)
        ends = {(one.low or 0) - 1, (one.high or 0) + 1} if one.nulls else {0.0}
        found += [_either_way(answers, numbers.fill_null(end).to_numpy()) for end in ends]
    if one.kind in {"integer", "text"} and not one.is_list:
        found.append(auc(ScoreCounts.of(answers, _means_elsewhere(values, answers))))
    return max(found, default=0.5)


def _either_way(answers: np.ndarray, scores: np.ndarray) -> float:
    value = auc(ScoreCounts.of(answers, scores))
    return max(value, 1 - value)


def _means_elsewhere(values: pl.Series, answers: np.ndarray) -> np.ndarray:
    """Return the mean label of each row's value in the other half of the rows, drawn at random, toward the mean of all."""
    half = np.random.default_rng(0).integers(0, 2, len(answers)).astype(np.int8)
    base = float(answers.mean())
    rows = pl.DataFrame({"value": values.cast(pl.String), "half": half, "label": answers.astype(np.float64)})
    sums = rows.group_by("value", "half").agg(pl.col("label").sum(), pl.len().alias("rows"))
    other = sums.select("value", (1 - pl.col("half")).alias("half"), pl.col("label").alias("sum"), pl.col("rows"))
    joined = rows.join(other, on=["value", "half"], how="left", nulls_equal=True, maintain_order="left")
    sum_, count = (joined[name].fill_null(0).to_numpy().astype(np.float64) for name in ("sum", "rows"))
    return np.asarray((sum_ + _PRIOR_ROWS * base) / (count + _PRIOR_ROWS))
