"""Embedding tables by column name, each looked up once per used row: what all models with categorical columns share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.batch import Batch, Ragged
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import PADDING, Column
from recsys_cli.registry import suggest

INITIAL_STD = 0.01
"""Standard deviation of a new table. Small, so that a row that training rarely sees stays near the average row instead of
adding noise of its own (torch's default of 1 does), and not zero, so that rows with the same gradients can part."""


def default_dim(cardinality: int) -> int:
    """Return the usual width for a table of n rows: min(512, max(16, round(1.6 n^0.56))), the rule of fast.ai and NVTabular."""
    return min(512, max(16, round(1.6 * cardinality**0.56)))


def dims_of(columns: Sequence[Column], option: int | Mapping[str, int] | None) -> dict[str, int]:
    """Return the width of each column's embedding.

    Args:
        columns: The categorical columns.
        option: One width for all, widths by column name, or None; what is not named follows `default_dim`.

    Raises:
        ConfigError: A name is not that of a categorical column.
    """
    names = [column.name for column in columns]
    given = dict.fromkeys(names, option) if isinstance(option, int) else dict(option or {})
    for name in given:
        if name not in names:
            raise ConfigError(
                f"embedding_dim: no categorical column {name!r}{suggest(name, names)}",
                hint=f"the columns with embeddings are {', '.join(names)}",
            )
    return {column.name: given.get(column.name) or default_dim(column.cardinality or 0) for column in columns}


@dataclass(frozen=True)
class Lookup:
    """The rows of one table that a batch uses, each once, and which of them belong to which row of the batch.

    What is linear and the same for all rows of the batch is cheaper done on `rows` (U of them) than after `spread` (B).

    Attributes:
        rows: The used rows; shape (U, D).
        inverse: For each id of the batch its place in `rows`; shape (B,), or (N,) where the column is ragged.
        offsets: Where each batch row's ids start, and N at the end; shape (B + 1,); None where every row has one id.
    """

    rows: Tensor
    inverse: Tensor
    offsets: Tensor | None = None

    def map(self, function: Callable[[Tensor], Tensor]) -> Lookup:
        """Return the lookup with a function applied to the used rows, (U, D) to (U, D')."""
        return replace(self, rows=function(self.rows))

    def spread(self) -> Tensor:
        """Return one row for each row of the batch, shape (B, D); the ids of a ragged row are summed, none give zero."""
        if self.offsets is None:
            return F.embedding(self.inverse, self.rows)
        return F.embedding_bag(self.inverse, self.rows, self.offsets, mode="sum", include_last_offset=True)


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
        ids, offsets = (feature.values, feature.offsets) if isinstance(feature, Ragged) else (feature, None)
        used, inverse = _distinct(ids)
        return Lookup(self._rows(self.table(name), used), inverse, offsets)

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
