"""Ops with statistics of groups: keys, tables by key, their join on Polars and their lookup on NumPy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from recsys_cli.errors import ConfigError
from recsys_cli.features.columns import PREFIX
from recsys_cli.features.hashing import combine, hash_counters, hash_value
from recsys_cli.ops.op import Op, Tables
from recsys_cli.ops.values import Apply, Array, Columns, Types, Values, from_arrow, hashes_of, null_mask
from recsys_cli.ops.vocabulary import ABSENT, MAX_CACHED
from recsys_cli.packages import np, npt, pa, pc, pl

KEY = "key"
"""Prefix of the key columns."""

Group = str | tuple[str, ...]
"""A column, or several for a group by their combination."""


def members(group: Group) -> tuple[str, ...]:
    """Return the columns of a group."""
    return (group,) if isinstance(group, str) else group


def name_of(group: Group) -> str:
    """Return the name of a group, a part of its output names."""
    return "_".join(members(group))


def columns_of(groups: Iterable[Group]) -> tuple[str, ...]:
    """Return the columns of several groups, without duplicates."""
    return tuple(dict.fromkeys(column for group in groups for column in members(group)))


def check_groups(groups: Iterable[Group], outputs: Iterable[str]) -> None:
    """Refuse empty groups, repeated columns and duplicate outputs."""
    for group in groups:
        if not members(group) or len(set(members(group))) < len(members(group)):
            raise ConfigError(f"{list(members(group))} is no group of columns; name at least one, each once")
    names = list(outputs)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"the outputs {', '.join(twice)} are repeated; use two ops with a Rename between them")


class GroupOp(Op):
    """Op with statistics for each group of `columns`, joined to the rows by key; null is a key like any other."""

    fitted: ClassVar[bool] = True

    if TYPE_CHECKING:  # each op has the field at its own position among the others
        columns: tuple[Group, ...]

    @property
    def values(self) -> tuple[str, ...]:
        """Numeric columns of the statistics."""
        raise NotImplementedError

    @property
    def reads(self) -> tuple[str, ...]:
        """Group columns and columns of the statistics."""
        return tuple(dict.fromkeys((*columns_of(self.columns), *self.values)))

    @property
    def reads_to_apply(self) -> tuple[str, ...]:
        """Group columns."""
        return columns_of(self.columns)

    @property
    def learns(self) -> tuple[str, ...]:
        """Names of the groups."""
        return tuple(map(name_of, self.columns))

    def written(self, group: Group) -> Mapping[str, str]:
        """Return the output names of a group, by statistic in the group's table."""
        raise NotImplementedError

    def statistics(self, group: Group, table: pa.Table, state: Tables) -> dict[str, Array]:
        """Return the statistics of a group by output name, from a table by key; at the end those of an absent group."""
        raise NotImplementedError

    def numpy(self, state: Tables, types: Types) -> Apply:
        """Look up the fitted statistics of each row's group."""
        groups = []
        for group in self.columns:
            table = state[name_of(group)]
            statistics = self.statistics(group, table, state)
            types |= {name: pa.from_numpy_dtype(values.dtype) for name, values in statistics.items()}
            groups.append((GroupIndex(table, members(group)), statistics))
        return gathered(groups)


def keys_of(group: Group, frame: pl.LazyFrame) -> list[pl.Expr]:
    """Return the key columns `key0`, `key1`, … in canonical form."""
    return [canonical_key(column, frame).alias(f"{KEY}{at}") for at, column in enumerate(members(group))]


def canonical_key(column: str, frame: pl.LazyFrame) -> pl.Expr:
    """Return the canonical values of a column: null for NaN, 0.0 for -0.0, strings for categoricals."""
    kind = frame.select(column).collect_schema()[column]
    if isinstance(kind, pl.Categorical | pl.Enum):
        return pl.col(column).cast(pl.String)
    return pl.col(column).fill_nan(None) + pl.lit(0.0, dtype=kind) if kind.is_float() else pl.col(column)


def join_by_key(
    frame: pl.LazyFrame, keys: Sequence[pl.Expr], statistics: pa.Table, names: Mapping[str, str]
) -> pl.LazyFrame:
    """Left join of statistics by group key, one row per key; null is a key like any other.

    `names`: column of the statistics → column of the result, possibly an existing one. Number and order of rows stay.
    """
    parts = [key.meta.output_name() for key in keys]
    hidden = {part: PREFIX + part for part in parts}
    table = pl.LazyFrame(statistics).select([pl.col(part).alias(hidden[part]) for part in parts] + [
        pl.col(column).alias(name) for column, name in names.items()
    ])  # fmt: skip
    rows = frame.with_columns([key.alias(hidden[part]) for key, part in zip(keys, parts, strict=True)])
    rows = rows.drop(list(names.values()), strict=False)
    on = list(hidden.values())
    return rows.join(table, on=on, how="left", nulls_equal=True, maintain_order="left").drop(on)


def stacked(parts: Sequence[pa.Table]) -> pl.DataFrame:
    """Concatenate the rows of tables."""
    return pl.concat([pl.DataFrame(pl.from_arrow(part)) for part in parts], how="vertical_relaxed")


def key_names(table: pl.DataFrame) -> list[str]:
    """Return the names of the key columns."""
    return [name for name in table.columns if name.startswith(KEY)]


def in_key_order(table: pl.DataFrame, *extra: str) -> pl.DataFrame:
    """Sort by key, then by extra columns: null first, strings by UTF-8 bytes."""
    return table.sort(*key_names(table), *extra, nulls_last=False, maintain_order=True)


def fitted_table(table: pl.DataFrame) -> pa.Table:
    """Convert for the fitted state: one chunk, strings as `string`."""
    arrow = table.to_arrow()
    columns = {name: arrow.column(name) for name in arrow.column_names}
    for name, values in columns.items():
        if pa.types.is_large_string(values.type) or str(values.type) == "string_view":
            columns[name] = pc.cast(values, pa.string())
    return pa.table(columns).combine_chunks()


class GroupIndex:
    """Index of the groups of a table of statistics: one row per group, by key columns (`key0`, `key1`, … by default)."""

    def __init__(self, table: pa.Table, names: Sequence[str], keys: Sequence[str] | None = None) -> None:
        self._names = tuple(names)
        keys = [f"{KEY}{at}" for at in range(len(self._names))] if keys is None else keys
        self._keys = [Values(one.data, null_mask(one)) for one in map(from_arrow, map(table.column, keys))]
        hashes = _hashes(self._keys[0])
        for key in self._keys[1:]:
            hashes = hash_counters(hashes, _hashes(key))
        order = np.argsort(hashes, kind="stable")
        self._hashes, self._rows = hashes[order], order
        self._found: dict[tuple[Any, ...], int] = {}

    def rows(self, columns: Mapping[str, Values]) -> npt.NDArray[np.int64]:
        """Return the table row of each row's group; ABSENT without one."""
        parts = [_values(columns[name]) for name in self._names]
        return np.fromiter(map(self._row, zip(*parts, strict=True)), np.int64, len(parts[0]))

    def _row(self, key: tuple[Any, ...]) -> int:
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= MAX_CACHED:
                self._found.clear()
            found = self._found[key] = self._search(key)
        return found

    def _search(self, key: tuple[Any, ...]) -> int:
        first, *others = (_OF_NULL if part is None else hash_value(part) for part in key)
        hashed = first
        for other in others:
            hashed = combine(hashed, other)
        place = int(self._hashes.searchsorted(np.uint64(hashed)))
        while place < len(self._hashes) and int(self._hashes[place]) == hashed:
            row = int(self._rows[place])
            if all(_at(column, row) == part for column, part in zip(self._keys, key, strict=True)):
                return row
            place += 1
        return ABSENT


_OF_NULL = 0
"""Hash of null as a part of a key."""


def lookup(table: pa.Table, column: str) -> Array:
    """Return a column of statistics as float64, with an entry for ABSENT at the end: NaN, as for null."""
    values = from_arrow(table.column(column))
    data = values.data.astype(np.float64)
    if values.nulls is not None:
        data[values.nulls] = np.nan
    return np.append(data, np.nan)


def gathered(groups: Sequence[tuple[GroupIndex, Mapping[str, Array]]]) -> Apply:
    """Return an `Apply` that adds columns by group.

    Args:
        groups: Index and columns with an entry per group, and one for ABSENT at the end.
    """

    def apply(columns: Columns, rows: int) -> None:
        for index, added in groups:
            found = index.rows(columns)
            for name, values in added.items():
                columns[name] = Values(values[found])

    return apply


def _hashes(values: Values) -> npt.NDArray[np.uint64]:
    hashes = hashes_of(values.data)
    return hashes if values.nulls is None else np.where(values.nulls, np.uint64(_OF_NULL), hashes)


def _at(values: Values, row: int) -> Any:
    return None if values.nulls is not None and values.nulls[row] else values.data[row]


def _values(values: Values) -> list[Any]:
    """Return the key parts of each row: null for NaN."""
    parts: list[Any] = values.data.tolist()
    if values.data.dtype.kind == "f":
        return [None if math.isnan(part) else part for part in parts]
    if values.nulls is not None:
        return [None if null else part for part, null in zip(parts, values.nulls.tolist(), strict=True)]
    return parts
