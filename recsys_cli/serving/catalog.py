"""The catalog of a served model: candidates in tie-breaking order, with ids, titles and features."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.serving.query import CatalogItem
from recsys_cli.serving.served import ServedModel

Ints = npt.NDArray[np.int64]
_MOST_KEPT = 1 << 14


class Catalog:
    """The rankable items: items of train, most popular first, then cold items for content-based models.

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
        rows = cold.rows if served.model.by_content else cold.rows[:0]
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
