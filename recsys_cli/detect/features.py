"""Ops of the columns without a role, by type and cardinality."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from recsys_cli.detect.names import words
from recsys_cli.detect.profiles import Profile
from recsys_cli.detect.roles import ENOUGH

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
    lists: dict[str, str] = field(default_factory=dict)
    unused: tuple[str, ...] = ()

    @property
    def used(self) -> tuple[str, ...]:
        """Columns that become features."""
        return (*self.categories, *self.skewed, *self.numbers)


def treatments(columns: Iterable[Profile]) -> FeatureColumns:
    """Return the columns by treatment; `lists` has the separators of text lists among the categories."""
    categories: list[str] = []
    skewed: list[str] = []
    numbers: list[str] = []
    unused: list[str] = []
    lists: dict[str, str] = {}
    for one in columns:
        if _is_useless(one):
            unused.append(one.name)
        elif one.is_numeric and not _is_category(one):
            is_skewed = (one.high or 0) > _SKEWED and (one.low or 0) >= -_SKEWED / 10
            (skewed if is_skewed else numbers).append(one.name)
        else:
            categories.append(one.name)
            if one.separator is not None:
                lists[one.name] = one.separator
    return FeatureColumns(tuple(categories), tuple(skewed), tuple(numbers), lists, tuple(unused))


def _is_useless(one: Profile) -> bool:
    if one.kind in {"empty", "time"} or (one.unique <= 1 and one.kind != "list"):
        return True
    is_row_id = one.kind == "text" and not one.is_list and one.unique > 0.9 * one.filled and one.rows >= ENOUGH
    return is_row_id or (one.kind == "text" and one.length > _LONGEST) or (one.kind == "integer" and one.is_key)


def _is_category(one: Profile) -> bool:
    return one.kind == "integer" and (one.unique <= _FEW_VALUES or bool(_ID_WORDS & set(words(one.name))))


def number_ops(found: FeatureColumns) -> list[tuple[dict[str, Any], str]]:
    """Return the ops of numeric columns, with comments."""
    numbers = [*found.skewed, *found.numbers]
    if not numbers:
        return []
    ops: list[tuple[dict[str, Any], str]] = [({"op": "FillMissing", "columns": numbers, "fill_val": 0}, "")]
    if found.skewed:
        ops += [
            ({"op": "Clip", "columns": list(found.skewed), "min_value": 0}, ""),
            ({"op": "LogOp", "columns": list(found.skewed)}, "numbers over several orders of magnitude"),
        ]
    return [*ops, ({"op": "Normalize", "columns": numbers}, "mean 0 and variance 1 in train")]
