"""Embedding tables by column name, on the device of the rest of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.batch import Batch, Ragged
from recsys_cli.features.schema import PADDING, Column
from recsys_cli.models.embedding.lookup import Lookup

INITIAL_STD = 0.01
"""Standard deviation of a new table. Small, so that a row that training rarely sees stays near the average row instead of
adding noise of its own (torch's default of 1 does), and not zero, so that rows with the same gradients can part."""


class Embeddings(nn.Module):
    """One table for each categorical column, found by the column's name and never by its position.

    Row 0 is padding: it is zero and gets no gradient.

    Args:
        columns: The categorical columns.
        dims: Width of each column's rows, as `dims_of` gives it.
        sparse: Whether the tables' gradients are sparse tensors, coalesced, holding only the rows of the batch.
    """

    def __init__(self, columns: Sequence[Column], dims: Mapping[str, int], *, sparse: bool = False) -> None:
        super().__init__()
        self.names = tuple(sorted(column.name for column in columns))
        self.dims = {name: dims[name] for name in self.names}
        self.sparse = sparse
        self.tables = nn.ModuleDict()
        for column in sorted(columns, key=lambda column: column.name):
            table = nn.Embedding(column.cardinality or 0, dims[column.name], padding_idx=PADDING, sparse=sparse)
            nn.init.normal_(table.weight, std=INITIAL_STD)
            with torch.no_grad():
                table.weight[PADDING] = 0
            self.tables[_key(column.name)] = table

    def table(self, name: str) -> Tensor:
        """Return a column's table, shape (cardinality, D)."""
        return self.tables[_key(name)].get_parameter("weight")

    def lookup(self, name: str, batch: Batch) -> Lookup:
        """Return the rows of a column's table that the batch uses."""
        feature = batch.features[name]
        used, inverse = _distinct(feature.values if isinstance(feature, Ragged) else feature)
        rows = self._rows(self.table(name), used)
        if isinstance(feature, Ragged):
            return Lookup(rows, inverse, feature.offsets, feature.weights)
        return Lookup(rows, inverse)

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Return each column's embeddings, shape (B, D); ragged columns are summed."""
        return {name: self.lookup(name, batch).spread() for name in self.names}

    def _rows(self, table: Tensor, used: Tensor) -> Tensor:
        if self.sparse and torch.is_grad_enabled():
            rows: Tensor = _SparseRows.apply(table, used)
            return rows
        return F.embedding(used, table, padding_idx=PADDING)


class _SparseRows(torch.autograd.Function):
    """`table[used]` for ascending ids without repeats: the gradient needs no sorting and no adding up.

    F.embedding(sparse=True) would return a gradient that has to be coalesced, which costs more than the update itself.
    """

    @staticmethod
    def forward(ctx: Any, table: Tensor, used: Tensor) -> Tensor:
        ctx.size = table.shape
        ctx.padded = int(used.numel() > 0 and used[0] == PADDING)
        ctx.save_for_backward(used)
        return table.index_select(0, used)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (used,) = ctx.saved_tensors
        ids, values = used[ctx.padded :].unsqueeze(0), gradients[0][ctx.padded :]
        return torch.sparse_coo_tensor(ids, values, ctx.size, is_coalesced=True, check_invariants=False), None


def _distinct(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ids without repeats, ascending, and the place of each id among them; both int64."""
    if ids.device.type == "cpu":  # numpy's vectorised sort is over ten times faster than torch's here
        used, inverse = np.unique(ids.numpy(), return_inverse=True)
        return torch.from_numpy(used.astype(np.int64, copy=False)), torch.from_numpy(inverse)
    used_ids, places = torch.unique(ids, return_inverse=True)
    return used_ids.long(), places


def _key(name: str) -> str:
    """Return a column name as a submodule name: no dots, which torch reserves, and nothing that ModuleDict calls its own."""
    return "of_" + name.replace("%", "%25").replace(".", "%2E")
