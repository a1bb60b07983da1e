"""Grown trees as tables: what many rows come to, without walking down each tree with each row.

After QuickScorer (Lucchese et al., SIGIR 2015): the leaves of a tree are the bits of a number, the leftmost the lowest. A node that
sends a row to the right rules out the leaves on its left; the row's leaf is the lowest that no node rules out. What the nodes
of a column rule out, in all trees, follows from between which of their thresholds a value is. So a column is a table with a
line for each such interval, and a row takes one line of each table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bits = npt.NDArray[np.signedinteger[Any]]
"""Leaves of trees, as the bits of int32 or int64."""

MAX_LEAVES = 63
"""Leaves that a tree may have: bits of a number without its sign."""
_ROWS = 256
"""Rows at a time: few enough that what is made of them stays in the caches."""
_LINES = 256
"""Columns with few intervals share a table of up to so many lines."""
_POWERS: dict[type[np.signedinteger[Any]], tuple[type[np.floating[Any]], int, int]] = {
    np.int32: (np.float32, 23, 127),
    np.int64: (np.float64, 52, 1_023),
}
"""By the kind of bits: decimal numbers as wide, the bits of their fraction, behind which the exponent stands, and that of 1."""


@dataclass(frozen=True)
class _Node:
    """A node of a tree.

    Attributes:
        tree: Which tree.
        left: The leaves on its left, as bits.
        says: How it decides, as LightGBM writes it.
    """

    tree: int
    left: int
    says: Mapping[str, Any]

    @property
    def tells_missing(self) -> bool:
        """Whether a missing number has a side of its own; elsewhere it is a zero."""
        return self.says["missing_type"] == "NaN"

    @property
    def bounds(self) -> list[float]:
        """Up to where values are decided alike: the threshold, or each of the categories that go left and what is below it."""
        if self.says["decision_type"] == "==":
            return [float(id_) - below for id_ in self.says["threshold"].split("||") for below in (0, 1)]
        return [self.says["threshold"]]

    def goes_right(self, values: Floats) -> npt.NDArray[np.bool_]:
        """Return where values go, NaN for a missing one."""
        if self.says["decision_type"] == "==":
            return ~np.isin(values, self.bounds[::2])
        return np.where(np.isnan(values), not self.says["default_left"], values > self.says["threshold"])


@dataclass(frozen=True)
class _Column:
    """What the nodes of a column rule out.

    Attributes:
        number: Which column.
        bounds: Where the intervals end that are not the last, ascending; shape (K,), float64.
        missing: The line of a missing value.
        lines: What is left of each tree's leaves, shape (K + 1 or K + 2, T).
    """

    number: int
    bounds: Floats
    missing: int
    lines: Bits

    @classmethod
    def of(cls, number: int, nodes: Sequence[_Node], nothing: Bits) -> _Column:
        """Tabulate nodes.

        Args:
            number: Which column they look at.
            nodes: All of them.
            nothing: What is left where nothing is ruled out, shape (T,).
        """
        bounds = np.unique([bound for node in nodes for bound in node.bounds])
        tells_missing = any(node.tells_missing for node in nodes)
        values = np.concatenate([bounds, [np.inf], [np.nan] * tells_missing])
        lines = nothing[None].repeat(len(values), axis=0)
        for node in nodes:
            right = node.goes_right(values if node.tells_missing else np.nan_to_num(values, nan=0.0, posinf=np.inf))
            lines[right, node.tree] &= ~node.left
        missing = len(bounds) + 1 if tells_missing else int(np.searchsorted(bounds, 0.0))
        return cls(number, bounds, missing, lines)

    def line(self, values: Floats) -> Ints:
        """Return the line of each value; both shape (N,)."""
        return np.where(np.isnan(values), self.missing, np.searchsorted(self.bounds, values))


class Forest:
    """The sums of many trees' leaves.

    Args:
        dumped: What `lightgbm.Booster.dump_model` returns of trees with up to `MAX_LEAVES` leaves.
    """

    def __init__(self, dumped: Mapping[str, Any]) -> None:
        roots = [tree["tree_structure"] for tree in dumped["tree_info"]]
        leaves: list[list[float]] = [[] for _ in roots]
        nodes: dict[int, list[_Node]] = {}
        for tree, root in enumerate(roots):
            for node in _nodes(root, tree, leaves[tree]):
                nodes.setdefault(node.says["split_feature"], []).append(node)
        most = max(map(len, leaves), default=1)
        self._kind: type[np.signedinteger[Any]] = np.int32 if most < 32 else np.int64
        self._values = np.array([[*found, *[0.0] * (most - len(found))] for found in leaves]).ravel()
        self._starts: Bits = (np.arange(len(roots)) * most).astype(self._kind)
        self._all_leaves: Bits = np.array([2 ** len(found) - 1 for found in leaves]).astype(self._kind)
        columns = [_Column.of(number, nodes[number], self._all_leaves) for number in sorted(nodes)]
        self._tables = [(some, _joined(some)) for some in _shared(columns)]

    def sums(self, rows: npt.NDArray[np.float32], *, threads: int) -> Floats:
        """Return what the trees come to.

        Args:
            rows: Of the columns that the trees were grown on, shape (N, F).
            threads: How many share the rows. Each works alone until it is done: to meet after each of the short steps, as threads
                of torch do, takes many times as long where the processors are busy with something else, too.

        Returns:
            A sum for each row, shape (N,).
        """
        with ThreadPoolExecutor(threads) as pool:
            return np.concatenate([*pool.map(self._sums, np.array_split(rows, threads))])

    def _sums(self, rows: npt.NDArray[np.float32]) -> Floats:
        columns = np.ascontiguousarray(rows.T, np.float64)
        lines = [_line(some, columns) for some, _ in self._tables]
        found = np.empty(len(rows))
        desk = _Desk.of(min(_ROWS, len(rows)), self._all_leaves)
        for start in range(0, len(rows), _ROWS):
            some = slice(start, start + _ROWS)
            self._sum_up([numbers[some] for numbers in lines], desk, found[some])
        return found

    def _sum_up(self, lines: Sequence[Ints], desk: _Desk, found: Floats) -> None:
        """Write the sums of some rows, shape (N,).

        Args:
            lines: Of each row, table by table; shape (N,).
            desk: For as many rows or more.
            found: Where they go.
        """
        left, other, power = desk.left[: len(found)], desk.other[: len(found)], desk.power[: len(found)]
        left[:] = self._all_leaves
        for numbers, (_, table) in zip(lines, self._tables, strict=True):
            left &= table.take(numbers, axis=0, out=other, mode="clip")
        left &= np.negative(left, out=other)  # the lowest
        power[:] = left
        _, fraction, of_one = _POWERS[self._kind]
        places = power.view(self._kind)
        places >>= fraction
        places += self._starts - of_one
        self._values.take(places, out=desk.values[: len(found)], mode="clip").sum(axis=1, out=found)


@dataclass(frozen=True)
class _Desk:
    """Memory for some rows at a time, which is asked for once: to get it takes as long as to compute in it. All (N, T).

    Attributes:
        left: Leaves that are left, as bits.
        other: The same of a single table.
        power: The lowest of them as a power of two, in a decimal number whose exponent says which it is.
        values: The leaves' values.
    """

    left: Bits
    other: Bits
    power: npt.NDArray[np.floating[Any]]
    values: Floats

    @classmethod
    def of(cls, rows: int, leaves: Bits) -> _Desk:
        """Make one for so many rows of what is like `leaves`, shape (T,)."""
        kinds = leaves.dtype, leaves.dtype, _POWERS[leaves.dtype.type][0], np.float64
        return cls(*(np.empty((rows, len(leaves)), dtype=kind) for kind in kinds))


def _nodes(node: Mapping[str, Any], tree: int, leaves: list[float]) -> Iterator[_Node]:
    """Yield the nodes below one, itself included, and note the leaves from left to right."""
    if "leaf_value" in node:
        leaves.append(node["leaf_value"])
        return
    start = len(leaves)
    yield from _nodes(node["left_child"], tree, leaves)
    yield _Node(tree, 2 ** len(leaves) - 2**start, node)
    yield from _nodes(node["right_child"], tree, leaves)


def _shared(columns: Sequence[_Column]) -> list[list[_Column]]:
    """Deal columns to tables, those with few lines together."""
    tables: list[list[_Column]] = []
    size = _LINES
    for column in sorted(columns, key=lambda column: len(column.lines)):
        size *= len(column.lines)
        if size > _LINES:
            tables.append([])
            size = len(column.lines)
        tables[-1].append(column)
    return tables


def _joined(columns: Sequence[_Column]) -> Bits:
    """Return what several columns rule out together: a line for each choice of a line of each, shape (K, T)."""
    first, *others = (column.lines for column in columns)
    for lines in others:
        first = (first[:, None] & lines).reshape(-1, lines.shape[1])
    return first


def _line(columns: Sequence[_Column], values: Floats) -> Ints:
    """Return the line of each row in a table that columns share; values (F, N), the result (N,)."""
    first, *others = columns
    found = first.line(values[first.number])
    for column in others:
        found = found * len(column.lines) + column.line(values[column.number])
    return found
