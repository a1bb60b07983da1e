"""Cold items: rows of the joined item table that are absent from train, and candidates by their table row.

Models never see these rows as ids: they get the shared id of cold items, and the item's own features.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from recsys_cli.evaluation.held_out import Ints, candidate_items
from recsys_cli.features.schema import UNSEEN, Role
from recsys_cli.interactions import Interactions
from recsys_cli.workspace import PreparedData


@dataclass(frozen=True)
class ColdItems:
    """The cold items of prepared data: `number` table rows from `first` on; encoded ids are below it.

    There are none without a joined item table, or if all its items are in train.
    """

    first: int
    number: int

    @classmethod
    def of(cls, data: PreparedData) -> ColdItems:
        """Read the number of cold keys of the item column."""
        column = data.schema.only(Role.ITEM)
        path = data.cold_keys(column.name)
        return cls(int(column.cardinality or 0), pq.read_metadata(path).num_rows if path.is_file() else 0)

    @property
    def rows(self) -> Ints:
        """Their table rows."""
        return np.arange(self.first, self.first + self.number)

    def candidates(self, train: Interactions) -> Ints:
        """Return the catalog: items of train in tie-breaking order, then the cold items."""
        return np.concatenate([candidate_items(self.hidden(train), num_items=self.first), self.rows])

    def among(self, item_idx: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
        """Return a mask of cold items."""
        return item_idx >= self.first

    def hidden(self, rows: Interactions) -> Interactions:
        """Return rows as models may see them."""
        cold = self.among(rows.item_idx)
        return replace(rows, item_idx=np.where(cold, np.int32(UNSEEN), rows.item_idx)) if cold.any() else rows
