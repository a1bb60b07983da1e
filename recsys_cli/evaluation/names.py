"""What a reader sees of encoded ids: raw ids, titles, features and interactions."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recsys_cli.config import EvaluateConfig
from recsys_cli.errors import ConfigError
from recsys_cli.evaluation.held_out import is_relevant
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.features.hashing import can_hash, hash_values
from recsys_cli.features.parquet import read_parquet
from recsys_cli.features.schema import FIRST, NULL, PADDING, Column, Role, Schema
from recsys_cli.features.spec import cast_ids
from recsys_cli.interactions import Interactions
from recsys_cli.loader.interactions import read_interactions, read_user_hashes
from recsys_cli.workspace import PreparedData

_NEAR = 3
_SEARCHED = 50_000
"""Most frequent values searched for similar ids: a search of all could take minutes."""


@dataclass(frozen=True)
class Item:
    """An item for a reader.

    Attributes:
        features: Raw feature values by column.
    """

    id: str
    title: str | None
    features: dict[str, tuple[str, ...]]

    @property
    def name(self) -> str:
        """The title, or else the raw id."""
        return self.title or self.id


@dataclass(frozen=True)
class Ids:
    """Raw ids of a column: the vocabulary, followed by the cold keys of its dimension table.

    Attributes:
        values: Raw ids; shape (N,).
        num_train: Size of the vocabulary.
        cardinality: Upper bound of encoded ids; table rows of cold keys start here.
    """

    values: pa.Array
    num_train: int
    cardinality: int

    def encoded(self, positions: int | npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """Return the encoded ids or table rows of positions among the values."""
        cold = positions + self.cardinality - self.num_train
        return np.where(np.less(positions, self.num_train), FIRST + positions, cold).astype(np.int64)

    def positions_of(self, encoded: int | npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the positions of encoded ids or table rows among the values; negative for ids without a value."""
        cold = np.where(np.less(encoded, self.cardinality), -1, encoded - self.cardinality + self.num_train)
        return np.where(np.less(encoded, FIRST + self.num_train), np.subtract(encoded, FIRST), cold)

    def decode(self, encoded: npt.NDArray[np.int64]) -> pa.Array:
        """Return the raw ids of encoded ids or table rows."""
        return self.values.take(pa.array(self.positions_of(encoded)))


class IdNames:
    """Decodes encoded ids; vocabularies are read on demand. Titles are in the order of `values`, null for items without one."""

    def __init__(self, data: PreparedData, titles: pa.Array | None = None) -> None:
        self._data = data
        self.titles = titles
        self._columns = {role: data.schema.only(role) for role in (Role.USER, Role.ITEM)}
        self._vocabularies: dict[str, pa.Array] = {}
        self._ids: dict[Role, Ids] = {}
        self._tables: dict[Role, pa.Table] = {}

    @property
    def schema(self) -> Schema:
        """Schema of the data."""
        return self._data.schema

    def ids(self, role: Role) -> Ids:
        """Return the raw ids of a role, cold ones included."""
        if role not in self._ids:
            column = self._columns[role]
            values, path = self._vocabulary(column), self._data.cold_keys(column.name)
            cold = [read_parquet(path, ["value"])["value"].combine_chunks().cast(values.type)] if path.is_file() else []
            self._ids[role] = Ids(pa.concat_arrays([values, *cold]), len(values), int(column.cardinality or 0))
        return self._ids[role]

    def values(self, role: Role) -> pa.Array:
        """Return raw ids in order of encoded ids; cold items follow the others, and cold users are left out."""
        ids = self.ids(role)
        return ids.values if role is Role.ITEM else ids.values.slice(0, ids.num_train)

    def encode(self, role: Role, raw: pa.Array) -> npt.NDArray[np.int64]:
        """Return the encoded ids of raw ids in any spelling of `cast_ids`; -1 for unknown ids."""
        values = self.values(role)
        given = raw if raw.type == values.type else cast_ids(raw.to_pylist(), values.type)
        positions = pc.fill_null(pc.index_in(given, value_set=values, skip_nulls=True), -1).to_numpy()
        return np.where(positions < 0, -1, self.ids(role).encoded(positions))

    def decode(self, role: Role, encoded: npt.NDArray[np.int64]) -> pa.Array:
        """Return the raw ids; the inverse of `encode`."""
        return self.ids(role).decode(encoded)

    def user(self, user_idx: int) -> str:
        """Return the raw id of a user."""
        return self._value(self._columns[Role.USER], user_idx)

    def ranked_user(self, rankings: Rankings, row: int) -> str:
        """Return the raw id of a user in rankings, or the start of a cold-start user's hash."""
        user_idx = int(rankings.users[row])
        return self.user(user_idx) if user_idx >= FIRST else f"#{rankings.user_hashes[row]:016x}"[:9]

    def item(self, item_idx: int) -> Item:
        """Return id, title and features of an item."""
        return Item(
            id=self._value(self._columns[Role.ITEM], item_idx),
            title=self._title(int(self.ids(Role.ITEM).positions_of(item_idx))),
            features=self.features(Role.ITEM, item_idx),
        )

    def features(self, role: Role, encoded: int) -> dict[str, tuple[str, ...]]:
        """Return the raw feature values of a user or item by column, from columns with a vocabulary."""
        by_column = {}
        table = self._table(role)
        for name in table.column_names:
            ids = table[name][encoded].as_py()
            ids = ids if isinstance(ids, list) else [ids]
            by_column[name] = tuple(self._value(self._data.schema[name], each) for each in ids if each != PADDING)
        return by_column

    def find(self, role: Role, text: str) -> int:
        """Return the encoded id of a raw id; for items also of a title, or of a part of exactly one title.

        Raises:
            ConfigError: The id is unknown; the message has similar ids, or the split of the user.
        """
        values = self.values(role)
        examples = ", ".join(str(value) for value in values[:_NEAR])
        if (given := cast_ids([text], values.type)[0]).is_valid and (position := pc.index(values, given).as_py()) >= 0:
            return int(self.ids(role).encoded(position))
        if role is Role.USER and (split := self._held_out(text)) is not None:
            raise ConfigError(
                f"user {text!r} is in {split}, not in train; only users of train can be inspected",
                hint=f"choose one of the {len(values):,} users of train, such as {examples}",
            )
        titled = self._titled(text) if role is Role.ITEM else []
        if len(titled) == 1:
            return int(self.ids(role).encoded(titled[0]))
        shown = [f"{values[position]} ({self._title(position)})" for position in titled[:_NEAR]]
        near = ", ".join(shown or self._near(role, text))
        trained = self.ids(role).num_train
        where = f"train and {len(values) - trained:,} more in the joined table" if len(values) > trained else "train"
        raise ConfigError(
            f"unknown {role.value} {text!r}{f'; similar: {near}' if near else ''}",
            hint=f"use a value of {self._columns[role].name} in the raw data: {trained:,} are in {where}"
            + ("" if near else f", such as {examples}"),
        )

    def _held_out(self, text: str) -> str | None:
        """Return the split with rows of a cold-start user; None without one."""
        value = cast_ids([text], self._vocabulary(self._columns[Role.USER]).type)
        if value.null_count or not can_hash(value.type):
            return None
        hashed = hash_values(value)[0]
        for split in ("test", "valid"):
            hashes = read_user_hashes(self._data, split)
            if hashes is not None and (hashes == hashed).any():
                return split
        return None

    def _title(self, position: int) -> str | None:
        title: str | None = (
            None if self.titles is None or not 0 <= position < len(self.titles) else self.titles[position].as_py()
        )
        return title

    def _titled(self, text: str) -> list[int]:
        """Return positions of items with that title, or else with a title that contains it; not of a number."""
        if self.titles is None or not text:
            return []
        holds = pc.indices_nonzero(pc.match_substring(self.titles, text, ignore_case=True).fill_null(False)).to_pylist()
        exact = [position for position in holds if str(self._title(position)).casefold() == text.casefold()]
        return exact or ([] if text.isdecimal() else holds)

    def _near(self, role: Role, text: str) -> list[str]:
        """Return similar ids or titles."""
        values = self.values(role)
        try:
            number = pa.scalar(text).cast(pa.float64())
            distance = pc.abs(pc.subtract(values.cast(pa.float64(), safe=False), number))
            return [str(values[position]) for position in pc.sort_indices(distance)[:_NEAR].to_pylist()]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            near = difflib.get_close_matches(text, [str(value) for value in values[:_SEARCHED]], n=_NEAR)
        if near or role is not Role.ITEM:
            return near
        titles = {self._title(position): position for position in range(min(len(values), _SEARCHED))}
        return [
            f"{values[titles[title]]} ({title})"
            for title in difflib.get_close_matches(text, [title for title in titles if title], n=_NEAR)
        ]

    def _table(self, role: Role) -> pa.Table:
        """Return the encoded columns with a vocabulary of a table by user or item."""
        if role not in self._tables:
            path = self._data.table(self._columns[role].name)
            names = pq.read_schema(path).names if path.is_file() else []
            names_with_values = [
                column.name
                for column in self._data.schema.categorical
                if column.name in names and column.vocabulary and self._data.vocabulary(column.vocabulary).is_file()
            ]
            self._tables[role] = read_parquet(path, names_with_values) if names_with_values else pa.table({})
        return self._tables[role]

    def _vocabulary(self, column: Column) -> pa.Array:
        assert column.vocabulary is not None, f"{column.name} is of encoded ids"
        if column.vocabulary not in self._vocabularies:
            table = read_parquet(self._data.vocabulary(column.vocabulary), ["value"])
            self._vocabularies[column.vocabulary] = table["value"].combine_chunks()
        return self._vocabularies[column.vocabulary]

    def _value(self, column: Column, encoded: int) -> str:
        values = self._vocabulary(column)
        if FIRST <= encoded < FIRST + len(values):
            return str(values[encoded - FIRST])
        if column.role is Role.ITEM and encoded >= int(column.cardinality or 0):
            return str(self.ids(Role.ITEM).decode(np.array([encoded]))[0])
        return "null" if encoded == NULL else "unseen"


SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class Interaction:
    """One interaction of a user with an item.

    Attributes:
        item_idx: Encoded item; of a cold item its row of the joined table, if it has one.
        is_positive: Label 1; for numeric labels, a label above the mean of train.
        time: Timestamp in the unit of the data; None in data without times.
        row_number: Row number in the raw input, which orders rows of equal time; 0 if unavailable.
    """

    item_idx: int
    label: float
    is_positive: bool
    time: float | None
    split: str
    row_number: int = 0


def rows_of(data: PreparedData, role: Role, encoded: int) -> dict[str, Interactions]:
    """Read the interactions of one user or item with times, by split; splits without rows are left out."""
    only = {data.schema.only(role).name: encoded}
    return {
        split: read_interactions(data, split, times=True, only=only, cold_items=True).observed()
        for split in SPLITS
        if data.rows(split)
    }


def newest_first(by_split: dict[str, Interactions], splits: Sequence[str]) -> list[Interaction]:
    """Return the rows of some splits by falling (time, row number); in file order in data without times."""
    rows = (row for split in splits if split in by_split for row in _one_by_one(by_split[split], split))
    return sorted(rows, key=lambda row: (-(row.time or 0), -row.row_number))


def find_ground_truth(
    by_split: dict[str, Interactions], splits: Sequence[str], before: Sequence[Interaction], config: EvaluateConfig
) -> list[Interaction]:
    """Return the ground truth of a user's ranking, without repeats of the items of `before`, by the rules of `hold_out`.

    One row for each item, and one for each interaction with an item without an id, which no system can recommend.
    """
    seen = {row.item_idx for row in before if row.item_idx >= FIRST and not config.repeats}
    rows = {
        split: by_split[split].chosen(is_relevant(by_split[split], config.relevance))
        for split in splits
        if split in by_split
    }
    relevant_rows = [row for row in newest_first(rows, splits) if row.item_idx not in seen]
    unknown = [row for row in relevant_rows if row.item_idx < FIRST]
    return [*{row.item_idx: row for row in relevant_rows if row.item_idx >= FIRST}.values(), *unknown]


def _one_by_one(rows: Interactions, split: str) -> Iterator[Interaction]:
    times = [None] * len(rows) if rows.times is None else rows.times.tolist()
    numbers = [0] * len(rows) if rows.row_numbers is None else rows.row_numbers.tolist()
    columns = rows.item_idx.tolist(), rows.labels.tolist(), rows.positive.tolist(), times, numbers
    for item_idx, label, is_positive, time, number in zip(*columns, strict=True):
        yield Interaction(item_idx, label, is_positive, time, split, number)
