"""The catalog of a served model: candidates in tie-breaking order, with ids, titles and features."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import FIRST
from recsys_cli.ops.evaluate import Operand, numbers_of
from recsys_cli.ops.expression import (
    FUNCTIONS,
    Binary,
    Call,
    Expression,
    Function,
    Kind,
    LiteralValue,
    Name,
    Unary,
    check,
    columns,
    kind_of_type,
    parse,
)  # fmt: skip
from recsys_cli.registry import suggest
from recsys_cli.serving.item_features import Values
from recsys_cli.serving.query import CatalogItem
from recsys_cli.serving.served import ServedModel

Ints = npt.NDArray[np.int64]
_MOST_KEPT = 1 << 14


class Catalog:
    """The rankable items: items of train, most popular first, then cold items that the model ranks.

    A place is the position of an item in this order.

    Args:
        served: The model.

    Attributes:
        users: Index of the raw user ids.
        items: Index of the raw item ids.
        candidates: Encoded items and table rows by place; shape (I,).
    """

    def __init__(self, served: ServedModel) -> None:
        self._served = served
        self.users, self.items = served.users, served.items
        cold = served.cold
        rows = cold.rows if served.model.ranks_cold_items else cold.rows[:0]
        self.candidates: Ints = np.concatenate([served.by_train_rows, rows])
        self._place_of = np.full(max(cold.first + cold.number, len(served.counts)) + 1, -1, np.int64)
        self._place_of[self.candidates] = np.arange(len(self.candidates))
        self._kept = lru_cache(_MOST_KEPT)(partial(_item, served))  # no method: a cycle would outlive the catalog

    def __len__(self) -> int:
        return len(self.candidates)

    def places(self, encoded: npt.NDArray[np.integer]) -> Ints:
        """Return the places of encoded items or table rows, -1 outside the catalog; -1 stays -1."""
        places: Ints = self._place_of[encoded]
        return places

    def places_of(self, raw: Sequence[Any]) -> Ints:
        """Return the places of raw ids, -1 outside the catalog."""
        return self.places(self._served.items.encode(raw))

    @cached_property
    def counts(self) -> npt.NDArray[np.float32]:
        """Train rows by place; 0 for cold items."""
        counts = np.zeros(len(self._place_of), np.float32)
        counts[: len(self._served.counts)] = self._served.counts
        return counts[self.candidates]

    def item(self, place: int) -> CatalogItem:
        """Return the item at a place; those of frequent answers are kept."""
        return self._kept(int(self.candidates[place]))

    def label(self, encoded: int) -> str:
        """Return the title of an encoded item or table row, or else its id as text."""
        position = int(self._served.items.positions_of(np.array(encoded)))
        return _title(self._served, position) or str(self._served.items.values[position].as_py())

    def search(self, text: str, k: int) -> list[CatalogItem]:
        """Return items by a part of their title or id, most popular first; all letters match in both cases."""
        found = pc.match_substring(self._texts, text, ignore_case=True).fill_null(False).to_numpy(zero_copy_only=False)
        if self._served.titles is not None:
            in_title = pc.match_substring(self._served.titles, text, ignore_case=True).fill_null(False)
            found = found | in_title.to_numpy(zero_copy_only=False)
        places = self.places(self._served.items.encoded(np.flatnonzero(found)))
        return [self.item(int(place)) for place in np.sort(places[places >= 0])[: max(0, k)]]

    @cached_property
    def _texts(self) -> pa.Array:
        return self._served.items.values.cast(pa.string())


def _item(served: ServedModel, encoded: int) -> CatalogItem:
    position = int(served.items.positions_of(np.array(encoded)))
    raw = (
        {}
        if served.item_values is None
        else {
            name: _shown(column[position].as_py())
            for name, column in zip(served.item_values.column_names, served.item_values.columns, strict=True)
        }
    )
    features = served.features.shown(encoded) | raw
    return CatalogItem(served.items.values[position].as_py(), _title(served, position), features)


def _shown(value: Any) -> tuple[str, ...]:
    """Return a raw value as text, none for null and NaN."""
    if isinstance(value, float):
        return () if np.isnan(value) else (np.format_float_positional(value, trim="-"),)
    return () if value is None else (str(value),)


def _title(served: ServedModel, position: int) -> str | None:
    titles = served.titles
    title: str | None = None if titles is None or position >= len(titles) else titles[position].as_py()
    return title


TITLE = "title"
"""Name of the titles in a filter."""
_ALLOWED: Mapping[str, Function] = {**FUNCTIONS, "contains": Function(("any", "text"), "truth")}
_CONTAINS = re.compile(
    r"""(?P<quoted>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|"""
    r"""(?P<of>column\(\s*(?:"[^"]*"|'[^']*')\s*\)|[^\W\d]\w*)\s+contains\s+(?P<text>"[^"]*"|'[^']*'|[^\s()"']+)"""
)
_PRESENT = np.zeros(1, dtype=bool)
_MOST_MASKS = 256
"""Maximum cached filters."""


@dataclass(frozen=True)
class _Column:
    """A column of the catalog: values and null mask, their type, and the lists of a list feature."""

    operand: Operand
    kind: Kind
    lists: Values | None = None


class ItemFilter:
    """Filters of the catalog's items by expressions.

    Args:
        served: The model, with item features and titles.
        rows: Encoded items or table rows of the catalog by place; shape (I,).
    """

    def __init__(self, served: ServedModel, rows: npt.NDArray[np.int64]) -> None:
        self._served, self._rows = served, rows
        self._columns: dict[str, _Column] = {}
        self._masks: dict[str, npt.NDArray[np.bool_]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Names for expressions: the item, its title, and its features with raw values."""
        title = (TITLE,) if self._served.titles is not None else ()
        features = self._served.features
        raw = () if self._served.item_values is None else self._served.item_values.column_names
        known = [*raw, *(name for name in (*features.names, *features.numeric) if name not in features.changed_by)]
        return (self._served.item.name, *title, *dict.fromkeys(known))

    def mask(self, text: str) -> npt.NDArray[np.bool_]:
        """Return the mask of items for which an expression is true; shape (I,).

        Raises:
            ConfigError: The expression does not parse, names an unknown feature, or mixes text and numbers.
        """
        if text not in self._masks:
            if len(self._masks) >= _MOST_MASKS:
                self._masks.clear()
            self._masks[text] = self._evaluated(text)
        return self._masks[text]

    def _evaluated(self, text: str) -> npt.NDArray[np.bool_]:
        own: dict[str, _Column] = {}
        tree = self._without_lists(parse(_CONTAINS.sub(_as_call, text), _ALLOWED), text, own)
        named = own | {name: self._column(name, text) for name in columns(tree) - own.keys()}
        if lists := [name for name, column in named.items() if column.lists is not None]:
            raise ConfigError(
                f"the filter {text!r} compares a list, {lists[0]}", hint=f"use contains: {lists[0]} contains VALUE"
            )
        kinds = {name: column.kind for name, column in named.items()}
        check(tree, kinds)
        with np.errstate(all="ignore"):
            values, nulls = numbers_of(tree, kinds)({name: column.operand for name, column in named.items()})
        return np.broadcast_to((values != 0) & ~nulls, self._rows.shape)

    def _without_lists(self, tree: Expression, text: str, own: dict[str, _Column]) -> Expression:
        """Replace calls of `contains`, and `is_null` of a list, by boolean columns, added to `own`."""
        match tree:
            case Unary(symbol, operand):
                return Unary(symbol, self._without_lists(operand, text, own))
            case Binary(symbol, left, right):
                return Binary(symbol, self._without_lists(left, text, own), self._without_lists(right, text, own))
            case Call("contains", (Name(name), LiteralValue(value))):
                found = self._contains(self._column(name, text), str(value).casefold())
            case Call("contains"):
                raise ConfigError(
                    f"the filter {text!r} has contains without a feature and a text", hint="genres contains Comedy"
                )
            case Call("is_null", (Name(name),)) if self._column(name, text).lists is not None:
                found = self._column(name, text).operand[1], _PRESENT
            case Call(function, arguments):
                return Call(function, tuple(self._without_lists(argument, text, own) for argument in arguments))
            case _:
                return tree
        replaced = f"contains {len(own)}"
        own[replaced] = _Column(found, "truth")
        return Name(replaced)

    def _contains(self, column: _Column, part: str) -> Operand:
        values, nulls = column.operand
        if column.lists is not None:
            equal = np.array([value.casefold() == part for value in column.lists.texts], bool)
            return column.lists.any_of(equal)[self._rows], nulls
        return np.fromiter((part in str(value).casefold() for value in values), bool, len(values)), nulls

    def _column(self, name: str, text: str) -> _Column:
        if name not in self._columns:
            if name not in self.names:
                self._check_raw(name, text)
                raise ConfigError(
                    f"the filter {text!r} names {name!r}, which is no item feature{suggest(name, self.names)}",
                    hint=f"the features are {', '.join(self.names)}; put text in quotes",
                )
            self._columns[name] = self._read(name)
        return self._columns[name]

    def _check_raw(self, name: str, text: str) -> None:
        """Raise a `ConfigError` for a column whose raw values are overwritten."""
        if (ops := self._served.features.changed_by.get(name)) is None:
            return
        verb = "changes" if len(ops) == 1 else "change"
        raise ConfigError(
            f"the filter {text!r} compares {name!r}, but {', '.join(ops)} {verb} its values",
            hint=f'put {{op: LambdaOp, expression: "{name}", output: {name}_raw}} before {ops[0]} in features.ops, train '
            f"again, and filter by {name}_raw; the features with raw values are {', '.join(self.names)}",
        )

    def _read(self, name: str) -> _Column:
        served = self._served
        positions = served.items.positions_of(self._rows)
        if name == served.item.name:
            return _of_arrow(served.items.values.take(pa.array(positions)), name)
        if name == TITLE and served.titles is not None:
            return _of_arrow(served.titles.take(pa.array(positions)), name)
        if served.item_values is not None and name in served.item_values.column_names:
            return _of_arrow(served.item_values[name].combine_chunks().take(pa.array(positions)), name)
        if name not in served.features.names:
            numbers = served.features.numbers(name)[self._rows].astype(np.float64)
            return _Column((numbers, np.isnan(numbers)), "number")
        found = served.features.values(name)
        if found.is_list:
            empty = np.diff(found.offsets)[self._rows] == 0
            return _Column((np.zeros(len(self._rows)), empty), "number", found)
        ids = found.ids[self._rows] - FIRST
        return _of_arrow(found.values.take(pa.array(ids, mask=(ids < 0) | (ids >= len(found.values)))), name)


def _of_arrow(values: pa.Array, name: str) -> _Column:
    """Return a column of raw values; types other than numbers are text."""
    nulls = values.is_null().to_numpy(zero_copy_only=False)
    try:
        kind = kind_of_type(values.type, name)
    except ConfigError:
        kind = "text"
    if kind == "text":
        return _Column((np.array([str(value) for value in values.to_pylist()], object), nulls), "text")
    if pa.types.is_temporal(values.type):
        values = values.cast(pa.timestamp("s"), safe=False).cast(pa.int64())
    numbers: npt.NDArray[Any] = values.fill_null(False if pa.types.is_boolean(values.type) else 0).to_numpy(
        zero_copy_only=False
    )
    return _Column((numbers, nulls), kind)


def _as_call(match: re.Match[str]) -> str:
    """Return `feature contains text` as a call, with quotes around a plain word."""
    if match["quoted"]:
        return match["quoted"]
    text = match["text"]
    quoted = text if text[0] in "\"'" else repr(text)
    return f"contains({match['of']}, {quoted})"
