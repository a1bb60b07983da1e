"""Filter expressions over item features, such as `genres contains Comedy and year > 1990`.

The grammar is that of `features.expression` with one more function: `contains(feature, text)`, also written
`feature contains text`. Comparisons with a missing value are not true.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cli.errors import ConfigError
from recsys_cli.features.expression import FUNCTIONS, Binary, Call, Expression, LiteralValue, Name, Unary, parse
from recsys_cli.features.expression.functions import Function
from recsys_cli.features.schema import FIRST
from recsys_cli.registry import suggest
from recsys_cli.serving.item_features import Values
from recsys_cli.serving.served import ServedModel

TITLE = "title"
"""Name of the titles in a filter."""
_ALLOWED: Mapping[str, Function] = {
    **{name: FUNCTIONS[name] for name in ("is_null", "lower", "length", "min", "max", "round")},
    "contains": Function(("any", "text"), "truth"),
}
_CONTAINS = re.compile(
    r"""(?P<quoted>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|"""
    r"""(?P<of>column\(\s*(?:"[^"]*"|'[^']*')\s*\)|[^\W\d]\w*)\s+contains\s+(?P<text>"[^"]*"|'[^']*'|[^\s()"']+)"""
)
_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_CALCULATE: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
}  # fmt: skip
_NUMERIC: Mapping[str, Callable[..., Any]] = {"min": np.minimum, "max": np.maximum, "round": np.round}


@dataclass(frozen=True)
class _Column:
    """Values of R rows (or of one literal), and a mask of those that are not missing; `lists` of a list feature."""

    values: npt.NDArray[Any]
    valid: npt.NDArray[np.bool_]
    lists: Values | None = None

    @property
    def is_text(self) -> bool:
        return self.values.dtype == object


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
        """Names for expressions: the item, its title, and its features."""
        title = (TITLE,) if self._served.titles is not None else ()
        features = self._served.features
        return (self._served.item.name, *title, *dict.fromkeys([*features.names, *features.numeric]))

    def mask(self, text: str) -> npt.NDArray[np.bool_]:
        """Return the mask of items for which an expression is true; shape (I,).

        Raises:
            ConfigError: The expression does not parse, names an unknown feature, or mixes text and numbers.
        """
        if text not in self._masks:
            tree = parse(_CONTAINS.sub(_as_call, text), _ALLOWED)
            column = self._truth(tree, text)
            if len(self._masks) >= _MOST_MASKS:
                self._masks.clear()
            self._masks[text] = np.broadcast_to(column.values & column.valid, self._rows.shape)
        return self._masks[text]

    def _truth(self, tree: Expression, text: str) -> _Column:
        column = self._evaluate(tree, text)
        if column.is_text or column.lists is not None:
            raise ConfigError(f"the filter {text!r} compares nothing", hint='such as "genres contains Comedy"')
        return _Column(column.values != 0, column.valid)

    def _evaluate(self, tree: Expression, text: str) -> _Column:
        match tree:
            case Name(name):
                return self._column(name, text)
            case LiteralValue(value):
                values = np.array([value], object if isinstance(value, str) else np.float64)
                return _Column(values, np.ones(1, bool))
            case Unary("not", operand):
                column = self._truth(operand, text)
                return _Column(~column.values, column.valid)
            case Unary(_, operand):
                column = self._number(operand, text)
                return _Column(-column.values, column.valid)
            case Binary("and" | "or" as logic, left, right):
                return _logic(logic, self._truth(left, text), self._truth(right, text))
            case Binary(symbol, left, right):
                return self._binary(symbol, left, right, text)
        return self._call(tree, text)

    def _binary(self, symbol: str, left: Expression, right: Expression, text: str) -> _Column:
        if symbol in _CALCULATE:
            one, other = self._number(left, text), self._number(right, text)
            with np.errstate(all="ignore"):
                return _Column(_CALCULATE[symbol](one.values, other.values), one.valid & other.valid)
        one, other = (self._single(operand, text) for operand in (left, right))
        if one.is_text != other.is_text:
            raise ConfigError(
                f"the filter {text!r} compares text with a number", hint="put text in quotes, and no numbers"
            )
        valid = one.valid & other.valid
        values = np.zeros(valid.shape, bool)
        first, second = np.broadcast_to(one.values, valid.shape), np.broadcast_to(other.values, valid.shape)
        values[valid] = _COMPARE[symbol](first[valid], second[valid])
        return _Column(values, valid)

    def _call(self, tree: Expression, text: str) -> _Column:
        assert isinstance(tree, Call), f"{tree} is no expression"
        if tree.function == "contains":
            return self._contains(*tree.arguments, text)
        if tree.function == "is_null":
            column = self._evaluate(tree.arguments[0], text)
            return _Column(~column.valid, np.ones_like(column.valid))
        if tree.function in {"lower", "length"}:
            column = self._single(tree.arguments[0], text)
            apply = str.lower if tree.function == "lower" else len
            values = [apply(str(value)) if ok else "" for value, ok in zip(column.values, column.valid, strict=True)]
            return _Column(np.array(values, object if tree.function == "lower" else np.float64), column.valid)
        columns = [self._number(argument, text) for argument in tree.arguments]
        valid = np.logical_and.reduce(np.broadcast_arrays(*(column.valid for column in columns)))
        return _Column(_NUMERIC[tree.function](*(column.values for column in columns)), valid)

    def _contains(self, feature: Expression, wanted: Expression, text: str) -> _Column:
        if not isinstance(wanted, LiteralValue):
            raise ConfigError(f"the filter {text!r} has contains without a text", hint="genres contains Comedy")
        part, column = str(wanted.value).casefold(), self._evaluate(feature, text)
        if column.lists is not None:
            equal = np.array([value.casefold() == part for value in column.lists.texts], bool)
            return _Column(column.lists.any_of(equal)[self._rows], np.ones_like(column.valid))
        hits = [part in str(v).casefold() if ok else False for v, ok in zip(column.values, column.valid, strict=True)]
        return _Column(np.array(hits, bool), column.valid)

    def _single(self, tree: Expression, text: str) -> _Column:
        column = self._evaluate(tree, text)
        if column.lists is not None:
            raise ConfigError(f"the filter {text!r} compares a list", hint="use contains: genres contains Comedy")
        return column

    def _number(self, tree: Expression, text: str) -> _Column:
        column = self._single(tree, text)
        if column.is_text:
            raise ConfigError(f"the filter {text!r} calculates with text", hint="compare text only with text")
        return column

    def _column(self, name: str, text: str) -> _Column:
        if name not in self._columns:
            if name not in self.names:
                hint = f"the features are {', '.join(self.names)}; put text in quotes"
                raise ConfigError(f"the filter {text!r} names {name!r}, which is no item feature"
                                  f"{suggest(name, self.names)}", hint=hint)  # fmt: skip
            self._columns[name] = self._read(name)
        return self._columns[name]

    def _read(self, name: str) -> _Column:
        served = self._served
        positions = served.items.positions_of(self._rows)
        if name == served.item.name:
            return _of_arrow(served.items.values.take(pa.array(positions)))
        if name == TITLE and served.titles is not None:
            return _of_arrow(served.titles.take(pa.array(positions)))
        if name not in served.features.names:
            numbers = served.features.numbers(name)[self._rows]
            return _Column(numbers, ~np.isnan(numbers))
        found = served.features.values(name)
        if found.is_list:
            empty = np.diff(found.offsets)[self._rows] == 0
            return _Column(np.zeros(len(self._rows)), ~empty, found)
        ids = found.ids[self._rows] - FIRST
        valid = (ids >= 0) & (ids < len(found.values))
        column = _of_arrow(found.values)
        return _Column(column.values[np.where(valid, ids, 0)], valid & column.valid[np.where(valid, ids, 0)])


_MOST_MASKS = 256
"""Maximum cached filters."""


def _of_arrow(values: pa.Array) -> _Column:
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_integer(values.type) or pa.types.is_floating(values.type) or pa.types.is_boolean(values.type):
        return _Column(values.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False), valid)
    return _Column(np.array([str(value) for value in values.to_pylist()], object), valid)


def _logic(logic: str, one: _Column, other: _Column) -> _Column:
    """Return `and` or `or` of two columns; a missing value decides nothing."""
    true = [column.values & column.valid for column in (one, other)]
    false = [~column.values & column.valid for column in (one, other)]
    is_true = true[0] & true[1] if logic == "and" else true[0] | true[1]
    is_false = false[0] | false[1] if logic == "and" else false[0] & false[1]
    return _Column(is_true, is_true | is_false)


def _as_call(match: re.Match[str]) -> str:
    """Return `feature contains text` as a call, with quotes around a plain word."""
    if match["quoted"]:
        return match["quoted"]
    text = match["text"]
    quoted = text if text[0] in "\"'" else repr(text)
    return f"contains({match['of']}, {quoted})"
