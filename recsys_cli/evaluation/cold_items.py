"""Cold items: those of the joined item table that train does not know. They are candidates, by the rows that they have there.

A model never sees such a row as an id: what it may look at has the id that cold items share, and their own features.
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
    """The cold items of prepared data.

    Attributes:
        first: The row of the first of them; encoded ids are below it.
        number: How many there are; 0 where no table is joined to items, or train knows all of it.
    """

    first: int
    number: int

    @classmethod
    def of(cls, data: PreparedData) -> ColdItems:
        """Look them up."""
        column = data.schema.only(Role.ITEM)
        path = data.cold_keys(column.name)
        return cls(int(column.cardinality or 0), pq.read_metadata(path).num_rows if path.is_file() else 0)

    @property
    def rows(self) -> Ints:
        """Their rows of the table, ascending."""
        return np.arange(self.first, self.first + self.number)

    def candidates(self, train: Interactions) -> Ints:
        """Return the catalog: items of train in the order that breaks ties, then the cold items."""
        return np.concatenate([candidate_items(self.hidden(train), num_items=self.first), self.rows])

    def among(self, item_idx: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
        """Return which items are cold and have a row of the table."""
        return item_idx >= self.first

    def hidden(self, rows: Interactions) -> Interactions:
        """Return rows as a model may look at them: cold items have the id 2."""
        cold = self.among(rows.item_idx)
        return replace(rows, item_idx=np.where(cold, np.int32(UNSEEN), rows.item_idx)) if cold.any() else rows
