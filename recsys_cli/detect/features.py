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
    if not one.is_numeric or _is_category(one):
        return "categories"
    return "skewed" if (one.high or 0) > _SKEWED and (one.low or 0) >= -_SKEWED / 10 else "numbers"


def _is_useless(one: Profile) -> bool:
    if one.kind in {"empty", "time"} or one.width == 0 or (one.unique <= 1 and one.kind != "list"):
        return True
    is_row_id = one.kind == "text" and not one.is_list and one.unique > 0.9 * one.filled and one.rows >= ENOUGH
    return is_row_id or (one.kind == "text" and one.length > _LONGEST) or (one.kind == "integer" and one.is_key)


def _is_category(one: Profile) -> bool:
    return one.kind == "integer" and (one.unique <= _FEW_VALUES or bool(_ID_WORDS & set(words(one.name))))


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
