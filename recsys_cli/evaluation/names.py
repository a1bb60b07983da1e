"""What encoded ids stand for, as people know it: raw ids of users, titles of items, and what an item is."""

from __future__ import annotations

import difflib
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recsys_cli.errors import ConfigError
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.features.hashing import can_hash, hash_values
from recsys_cli.features.schema import FIRST, NULL, PADDING, Column, Role
from recsys_cli.loader.interactions import read_user_hashes
from recsys_cli.workspace import PreparedData

_NEAR = 3
_SEARCHED = 50_000
"""Values that are compared with one that is not there, the most frequent ones: looking at all could take minutes."""


@dataclass(frozen=True)
class Item:
    """An item for a reader.

    Attributes:
        id: Its raw id.
        title: What it is called; None where nothing says it.
        features: What it is, by column, in raw values.
    """

    id: str
    title: str | None
    features: dict[str, tuple[str, ...]]

    @property
    def name(self) -> str:
        """What to call it: the title, or else the raw id."""
        return self.title or self.id


class IdNames:
    """Tells what encoded ids stand for; vocabularies are read when they are asked for.

    An item that train does not know is told by its row of the joined table.

    Args:
        data: Prepared.
        titles: What items are called, in the order of `values`, null where one has no title; None for no titles.
    """

    def __init__(self, data: PreparedData, titles: pa.Array | None = None) -> None:
        self._data = data
        self._titles = titles
        self._columns = {role: data.schema.only(role) for role in (Role.USER, Role.ITEM)}
        self._vocabularies: dict[str, pa.Array] = {}
        self._all: dict[Role, pa.Array] = {}
        self._tables: dict[Role, pa.Table] = {}

    def values(self, role: Role) -> pa.Array:
        """Return the raw ids of users of train, or of items: those of train, in the order of the encoded ids, then cold ones."""
        if role not in self._all:
            column = self._columns[role]
            values = self._vocabulary(column)
            self._all[role] = pa.concat_arrays([values, self._cold(column)]) if role is Role.ITEM else values
        return self._all[role]

    def encode(self, role: Role, raw: pa.Array) -> npt.NDArray[np.int64]:
        """Return the encoded ids of raw ids, in their order; -1 where there is none.

        Args:
            role: USER or ITEM.
            raw: Raw ids, in a type that casts to that of the data.

        Raises:
            ConfigError: It does not cast.
        """
        values, column = self.values(role), self._columns[role]
        try:
            places = pc.fill_null(pc.index_in(raw.cast(values.type), value_set=values), -1).to_numpy()
        except pa.ArrowException as error:
            raise ConfigError(f"{role} ids are {raw.type}, and {column.name} is {values.type}: {error}") from error
        known = len(self._vocabulary(column))
        encoded = np.where(places < known, FIRST + places, int(column.cardinality or 0) + places - known)
        return np.where(places < 0, -1, encoded).astype(np.int64)

    def decode(self, role: Role, encoded: npt.NDArray[np.int64]) -> pa.Array:
        """Return the raw ids of encoded ids; the inverse of `encode`."""
        column = self._columns[role]
        known, cardinality = len(self._vocabulary(column)), int(column.cardinality or 0)
        return self.values(role).take(np.where(encoded < cardinality, encoded - FIRST, known + encoded - cardinality))

    def user(self, user_idx: int) -> str:
        """Return the raw id of a user."""
        return self._value(self._columns[Role.USER], user_idx)

    def ranked_user(self, rankings: Rankings, row: int) -> str:
        """Return what to call the user of a row of rankings: one whom train does not have has a hash and no id."""
        user_idx = int(rankings.users[row])
        return self.user(user_idx) if user_idx >= FIRST else f"#{rankings.user_hashes[row]:016x}"[:9]

    def item(self, item_idx: int) -> Item:
        """Return what is known of an item."""
        return Item(
            id=self._value(self._columns[Role.ITEM], item_idx),
            title=self._title(self._place(item_idx)),
            features=self.features(Role.ITEM, item_idx),
        )

    def features(self, role: Role, encoded: int) -> dict[str, tuple[str, ...]]:
        """Return what a user or an item is, by column, in raw values, as far as those are known for its ids."""
        found = {}
        table = self._table(role)
        for name in table.column_names:
            ids = table[name][encoded].as_py()
            ids = ids if isinstance(ids, list) else [ids]
            found[name] = tuple(self._value(self._data.schema[name], each) for each in ids if each != PADDING)
        return found

    def find(self, role: Role, text: str) -> int:
        """Return the encoded id of a user or an item.

        Args:
            role: USER or ITEM.
            text: The raw id as somebody typed it; or of an item its title, or letters that no other title has.

        Raises:
            ConfigError: Train has no such id, nor a joined table of items; the message has those that are near, or the split that
                has the user.
        """
        values = self.values(role)
        with suppress(
            pa.ArrowInvalid, pa.ArrowNotImplementedError
        ):  # what is no number is no value of a column of numbers
            place = pc.index(values, pa.scalar(text).cast(values.type)).as_py()
            if place >= 0:
                return self._encoded(role, int(place))
        if role is Role.USER and (split := self._held_out(text)) is not None:
            raise ConfigError(
                f"user {text!r} is in {split}, not in train; only users of train are shown",
                hint=f"take one of the {len(values):,} users of train, such as "
                + ", ".join(str(value) for value in values[:_NEAR]),
            )
        titled = self._titled(text) if role is Role.ITEM else []
        if len(titled) == 1:
            return self._encoded(role, titled[0])
        shown = [f"{values[place]} ({self._title(place)})" for place in titled[:_NEAR]]
        near = ", ".join(shown or self._near(role, text))
        known = ", ".join(str(value) for value in values[:_NEAR])
        trained = len(self._vocabulary(self._columns[role]))
        joined = len(values) - trained
        nobody = "neither train nor the joined table has" if joined else "train has no"
        where = f"train and {joined:,} more in the joined table" if joined else "train"
        raise ConfigError(
            f"{nobody} {role.value} {text!r}{f'; near it are {near}' if near else ''}",
            hint=f"an ID is a value of {self._columns[role].name} in the raw data, of which there are {trained:,} in {where}"
            + ("" if near else f", such as {known}"),
        )

    def _held_out(self, text: str) -> str | None:
        """Return the split that has rows of a user whom train does not have; None where none has."""
        with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
            value = pa.array([text]).cast(self._vocabulary(self._columns[Role.USER]).type)
            if can_hash(value.type):
                wanted = hash_values(value)[0]
                for split in ("test", "valid"):
                    hashes = read_user_hashes(self._data, split)
                    if hashes is not None and (hashes == wanted).any():
                        return split
        return None

    def _encoded(self, role: Role, place: int) -> int:
        """Return the encoded id of a place among the values, or of a cold item its row of the table."""
        known = len(self._vocabulary(self._columns[role]))
        return FIRST + place if place < known else int(self._columns[role].cardinality or 0) + place - known

    def _place(self, item_idx: int) -> int:
        """Return the place of an item among the values, -1 where it is none of them."""
        column = self._columns[Role.ITEM]
        known, cardinality = len(self._vocabulary(column)), int(column.cardinality or 0)
        if item_idx >= cardinality:
            return known + item_idx - cardinality
        return item_idx - FIRST if FIRST <= item_idx < FIRST + known else -1

    def _cold(self, column: Column) -> pa.Array:
        """Return the raw values of the keys of a column's table that train does not know, in the order of their rows."""
        kind, path = self._vocabulary(column).type, self._data.cold_keys(column.name)
        if not path.is_file():
            return pa.array([], kind)
        return pq.read_table(path, columns=["value"])["value"].combine_chunks().cast(kind)

    def _title(self, place: int) -> str | None:
        """Return the title of a value of the vocabulary, by its place there; None where it has none."""
        found: str | None = (
            None if self._titles is None or not 0 <= place < len(self._titles) else self._titles[place].as_py()
        )
        return found

    def _titled(self, text: str) -> list[int]:
        """Return the places of items of that title, or else of titles that hold it; a number is more likely to be a wrong id."""
        if self._titles is None or not text:
            return []
        holds = pc.indices_nonzero(
            pc.match_substring(self._titles, text, ignore_case=True).fill_null(False)
        ).to_pylist()
        exact = [place for place in holds if str(self._title(place)).casefold() == text.casefold()]
        return exact or ([] if text.isdecimal() else holds)

    def _near(self, role: Role, text: str) -> list[str]:
        """Return ids that may have been meant: of numbers those around it, else those that look like it or whose title does."""
        values = self.values(role)
        try:
            wanted = pa.scalar(text).cast(pa.float64())
            far = pc.abs(pc.subtract(values.cast(pa.float64(), safe=False), wanted))
            return [str(values[place]) for place in pc.sort_indices(far)[:_NEAR].to_pylist()]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            near = difflib.get_close_matches(text, [str(value) for value in values[:_SEARCHED]], n=_NEAR)
        if near or role is not Role.ITEM:
            return near
        titles = {self._title(place): place for place in range(min(len(values), _SEARCHED))}
        return [
            f"{values[titles[title]]} ({title})"
            for title in difflib.get_close_matches(text, [title for title in titles if title], n=_NEAR)
        ]

    def _table(self, role: Role) -> pa.Table:
        """Return the columns of encoded ids that a table by user or by item has, as far as their vocabularies are there."""
        if role not in self._tables:
            path = self._data.table(self._columns[role].name)
            names = pq.read_schema(path).names if path.is_file() else []
            known = [
                column.name
                for column in self._data.schema.categorical
                if column.name in names and column.vocabulary and self._data.vocabulary(column.vocabulary).is_file()
            ]
            self._tables[role] = pq.read_table(path, columns=known) if known else pa.table({})
        return self._tables[role]

    def _vocabulary(self, column: Column) -> pa.Array:
        assert column.vocabulary is not None, f"{column.name} is of encoded ids"
        if column.vocabulary not in self._vocabularies:
            table = pq.read_table(self._data.vocabulary(column.vocabulary), columns=["value"])
            self._vocabularies[column.vocabulary] = table["value"].combine_chunks()
        return self._vocabularies[column.vocabulary]

    def _value(self, column: Column, encoded: int) -> str:
        values = self._vocabulary(column)
        if FIRST <= encoded < FIRST + len(values):
            return str(values[encoded - FIRST])
        if column.role is Role.ITEM and encoded >= int(column.cardinality or 0):
            return str(self.values(Role.ITEM)[self._place(encoded)])
        return "null" if encoded == NULL else "unseen"
