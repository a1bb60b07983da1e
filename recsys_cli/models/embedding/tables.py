"""Embedding tables by column name, in full or reduced precision, with one lookup per distinct row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.batch import Batch, Padded, Ragged
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import PADDING, Column
from recsys_cli.registry import suggest

_MAX_COUNTED = 64
"""Maximum distinct rows for a product with a count matrix on a CPU, faster there than EmbeddingBag and its gradient."""
TableType = Literal["fp32", "fp16", "int8"]
_INT8 = 127
INITIAL_STD = 0.01
"""Standard deviation of initial embeddings: small, so that rare rows stay near the average, unlike with torch's default of 1; not
zero, so that rows with the same gradients can diverge."""
_MAX_SET = 8
"""Maximum number of ids of a lookup whose distinct ones a set finds faster than a sort of NumPy."""
_initialized: ContextVar[bool] = ContextVar("initialized", default=True)


def default_dim(cardinality: int) -> int:
    """Return the default width for cardinality n: min(512, max(16, round(1.6 n^0.56))), the rule of fast.ai and NVTabular."""
    return min(512, max(16, round(1.6 * cardinality**0.56)))


def dims_of(columns: Sequence[Column], option: int | Mapping[str, int] | None) -> dict[str, int]:
    """Return the embedding width of each categorical column: one for all, by name, or by `default_dim`.

    Raises:
        ConfigError: A name is no categorical column.
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
    """The distinct rows of one table in a batch, and their assignment to batch rows.

    Linear operations common to all rows are cheaper on `rows` (U of them) than after `spread` (B).

    Attributes:
        rows: Distinct rows of the table; shape (U, D).
        inverse: Index into `rows` of each id of the batch; shape (B,), or (N,) for a ragged column.
        offsets: Row pointers of a ragged column, shape (B + 1,), else None.
        weights: Weight of each id, shape (N,); None for 1.
        used: Ids of the rows, ascending, shape (U,), int64; None if not set.
    """

    rows: Tensor
    inverse: Tensor
    offsets: Tensor | None = None
    weights: Tensor | None = None
    used: Tensor | None = None

    def map(self, function: Callable[[Tensor], Tensor]) -> Lookup:
        """Return the lookup with a function applied to the rows, (U, D) to (U, D')."""
        return replace(self, rows=function(self.rows))

    def spread(self) -> Tensor:
        """Return one embedding per batch row, shape (B, D): the sum of a ragged row's ids, zero if empty."""
        if self.offsets is None:
            is_copy = self.inverse.numel() == self.rows.shape[0] == 1 and not torch.is_grad_enabled()
            return self.rows if is_copy else F.embedding(self.inverse, self.rows)
        if (
            self.rows.shape[0] <= _MAX_COUNTED
            and self.rows.device.type == "cpu"
            and not torch.is_autocast_enabled("cpu")
        ):
            return self._counts(self.offsets) @ self.rows
        weights = None if self.weights is None else self.weights.to(self.rows.dtype)
        return F.embedding_bag(
            self.inverse, self.rows, self.offsets, mode="sum", per_sample_weights=weights, include_last_offset=True
        )

    def squares(self) -> Tensor:
        """Return the squared norm of each row of `spread`; shape (B,)."""
        if self.offsets is not None:
            return self.spread().square().sum(1)
        return self.map(lambda rows: rows.square().sum(1, keepdim=True)).spread().squeeze(1)

    def _counts(self, offsets: Tensor) -> Tensor:
        """Return the count, or total weight, of each distinct row in each batch row; shape (B, U)."""
        num_rows, used = offsets.numel() - 1, self.rows.shape[0]
        if num_rows == 1:
            ones = torch.ones(self.inverse.numel(), dtype=self.rows.dtype) if self.weights is None else self.weights
            return self.rows.new_zeros(used).index_add_(0, self.inverse, ones.to(self.rows.dtype)).unsqueeze(0)
        row = torch.repeat_interleave(offsets.diff(), output_size=self.inverse.numel())
        weights = torch.ones(row.numel()) if self.weights is None else self.weights
        counts = self.rows.new_zeros(num_rows * used)
        return counts.index_add_(0, row.mul_(used).add_(self.inverse), weights.to(counts.dtype)).view(num_rows, used)


@dataclass(frozen=True)
class PaddedLookup(Lookup):
    """The rows of all ids of a `Padded` column, in order; `inverse` has the ids, and `weights` the shape of a rectangle."""

    def spread(self) -> Tensor:
        """Return one embedding per batch row, shape (B, D): the weighted sum of a list."""
        if self.weights is None:
            return self.rows
        return (self.rows.unflatten(0, self.inverse.shape) * self.weights.unsqueeze(2)).sum(1)

    def squares(self) -> Tensor:
        """Return the squared norm of each row of `spread`; shape (B,)."""
        return self.spread().square().sum(1)


class QuantizedTable(nn.Module):
    """Rows of a table in fewer bytes; a lookup dequantizes only the rows of a batch.

    int8 is symmetric: each row is divided by its own scale, its largest absolute value over 127, and rounded. Row 0, padding,
    stays zero.

    Args:
        num_rows: Number of rows.
        dim: Width.
        kind: fp16 or int8.
    """

    weight: Tensor
    scale: Tensor | None

    def __init__(self, num_rows: int, dim: int, kind: TableType) -> None:
        super().__init__()
        dtype = torch.int8 if kind == "int8" else torch.float16
        self.register_buffer("weight", torch.empty(num_rows, dim, dtype=dtype))
        self.register_buffer("scale", torch.empty(num_rows) if kind == "int8" else None)

    @classmethod
    def of(cls, table: Tensor, kind: TableType) -> QuantizedTable:
        """Return a table with quantized rows.

        Args:
            table: Rows, float32, shape (cardinality, D).
            kind: fp16 or int8.
        """
        made = cls(0, 0, kind)
        rows = table.detach()
        if made.scale is None:
            limit = torch.finfo(torch.float16).max
            made.weight = rows.clamp(-limit, limit).to(torch.float16)
            return made
        made.scale = rows.abs().amax(dim=1) / _INT8
        divisors = torch.where(made.scale > 0, made.scale, 1.0).unsqueeze(1)
        made.weight = (rows / divisors).round().clamp(-_INT8, _INT8).to(torch.int8)
        return made

    def rows(self, ids: Tensor) -> Tensor:
        """Return rows, float32, shape (U, D), on the device of their ids."""
        place = ids.to(self.weight.device)
        rows = self.weight.index_select(0, place).float()
        if self.scale is not None:
            rows = rows * self.scale.index_select(0, place).unsqueeze(1)
        return rows.to(ids.device)

    @cached_property
    def dequantized(self) -> Tensor:
        """The whole table, float32; kept in memory, for models that read all rows at once."""
        with torch.inference_mode(False), torch.no_grad():
            rows = self.weight.float()
            return rows if self.scale is None else rows * self.scale.unsqueeze(1)


@contextmanager
def without_values() -> Iterator[None]:
    """Create tables without initial values, for a model whose weights are assigned next."""
    token = _initialized.set(False)
    try:
        yield
    finally:
        _initialized.reset(token)


@dataclass(frozen=True)
class TableInit:
    """Size and seed of a table before its creation."""

    num_rows: int
    seed: int


def _take(table: Tensor, ids: Tensor, device: torch.device) -> Tensor:
    """Return `table[ids]` on a device, without a wait of the host for the copy."""
    if table.device == device:
        return table.index_select(0, ids)
    rows = torch.empty((ids.numel(), table.shape[1]), dtype=table.dtype, pin_memory=device.type == "cuda")
    torch.index_select(table.detach(), 0, ids, out=rows)
    return rows.to(device, non_blocking=True)


class Embeddings(nn.Module):
    """One table per categorical column, with widths from `dims_of`. Row 0 is padding: zero, without a gradient.

    `sparse` gives the tables coalesced sparse gradients, with only the rows of the batch.
    """

    uncompiled = ("lookups",)
    take: Callable[[Tensor, Tensor, torch.device], Tensor] = staticmethod(_take)
    """Returns rows of a table on a device, without gradients; the ids are ascending."""

    def __init__(self, columns: Sequence[Column], dims: Mapping[str, int], *, sparse: bool = False) -> None:
        super().__init__()
        self.names = tuple(sorted(column.name for column in columns))
        self.dims = {name: dims[name] for name in self.names}
        self.sparse = sparse
        rows = {column.name: column.cardinality or 0 for column in columns}
        # One seed per table, so that a rank with a shard can create it independently.
        self._make({name: TableInit(rows[name], int(torch.randint(1 << 62, (), device="cpu"))) for name in self.names})

    def _make(self, inits: Mapping[str, TableInit]) -> None:
        self.tables = nn.ModuleDict()
        for name, one in inits.items():
            weight = initial_rows(one.num_rows, self.dims[name], seed=one.seed)
            self.tables[key_of(name)] = nn.Embedding(
                one.num_rows, self.dims[name], padding_idx=PADDING, sparse=self.sparse, _weight=weight
            )

    @property
    def num_external_parameters(self) -> int:
        """Number of table elements outside this module's parameters: those of quantized tables."""
        return sum(table.weight.numel() for table in self.tables.values() if isinstance(table, QuantizedTable))

    def quantize(self, kind: TableType, *, values: bool = True) -> None:
        """Replace the tables by quantized ones; training is impossible then.

        Args:
            kind: fp16 or int8.
            values: Quantize the current rows; otherwise the rows are assigned next.
        """
        for name in self.names:
            table = self.table(name)
            made = QuantizedTable.of(table, kind) if values else QuantizedTable(table.shape[0], table.shape[1], kind)
            self.tables[key_of(name)] = made

    def table(self, name: str) -> Tensor:
        """Return a column's table, shape (cardinality, D)."""
        table = self.tables[key_of(name)]
        return table.dequantized if isinstance(table, QuantizedTable) else cast("Tensor", table.weight)

    @torch.no_grad()
    def write_rows(self, name: str, ids: Tensor, rows: Tensor) -> None:
        """Replace rows of a column's table: (U, D) values at distinct ids, shape (U,), int64."""
        table = self.table(name)
        table.index_copy_(0, ids.to(table.device), rows.to(table.device))

    def lookups(self, batch: Batch, *, like: Mapping[str, Lookup] | None = None) -> dict[str, Lookup]:
        """Return a lookup per column of the batch, in the order of `names`, with the distinct ids of `like`, if given."""
        features = {name: batch.features[name] for name in self.names}
        indices = {name: _indices(feature, (like or {}).get(name)) for name, feature in features.items()}
        rows = self.rows({name: used for name, (used, _) in indices.items()})
        return {name: _lookup(feature, rows[name], *indices[name]) for name, feature in features.items()}

    def rows(self, used: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return rows of each table, shape (U, D), on the device of their ids: ascending, distinct, int64, shape (U,)."""
        return {name: self._rows_of(name, ids) for name, ids in used.items()}

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Return the embeddings of each column, shape (B, D); ragged columns are summed."""
        return {name: lookup.spread() for name, lookup in self.lookups(batch).items()}

    def _rows_of(self, name: str, used: Tensor) -> Tensor:
        quantized = self.tables[key_of(name)]
        if isinstance(quantized, QuantizedTable):
            return quantized.rows(used)
        table = self.table(name)
        if not torch.is_grad_enabled():
            return self.take(table, used.to(table.device), used.device)
        if self.sparse:
            rows: Tensor = _SparseRows.apply(table, used)
            return rows
        return F.embedding(used, table, padding_idx=PADDING)


def initial_rows(num_rows: int, dim: int, *, seed: int) -> Tensor:
    """Return initial embeddings, shape (num_rows, dim), on the host; row 0, padding, is zero."""
    if not _initialized.get():
        return torch.empty(num_rows, dim)
    weight = torch.empty(num_rows, dim).normal_(std=INITIAL_STD, generator=torch.Generator().manual_seed(seed))
    weight[:1] = 0
    return weight


def key_of(name: str) -> str:
    """Return a column name as a submodule name, without dots and without conflicts with attributes of ModuleDict."""
    return "of_" + name.replace("%", "%25").replace(".", "%2E")


def _indices(feature: Tensor | Ragged | Padded, like: Lookup | None) -> tuple[Tensor, Tensor]:
    if isinstance(feature, Padded):
        return feature.values.flatten(), feature.values
    if like is not None and like.used is not None:
        return like.used, like.inverse
    return distinct(feature.values if isinstance(feature, Ragged) else feature)


def _lookup(feature: Tensor | Ragged | Padded, rows: Tensor, used: Tensor, inverse: Tensor) -> Lookup:
    if isinstance(feature, Padded):
        return PaddedLookup(rows, inverse, weights=feature.weights)
    if isinstance(feature, Ragged):
        return Lookup(rows, inverse, feature.offsets, feature.weights, used)
    return Lookup(rows, inverse, used=used)


class _SparseRows(torch.autograd.Function):
    """`table[used]` for ascending distinct ids, with a coalesced gradient: sorting it would cost more than the update.

    The table may be on another device than the ids: only rows and their gradients move.
    """

    @staticmethod
    def forward(ctx: Any, table: Tensor, used: Tensor) -> Tensor:
        ids = used.to(table.device)
        ctx.size = table.shape
        ctx.padded = int(ids.numel() > 0 and ids[0] == PADDING)
        ctx.save_for_backward(ids)
        return _take(table, ids, used.device)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (ids,) = ctx.saved_tensors
        ids, values = ids[ctx.padded :].unsqueeze(0), gradients[0][ctx.padded :].to(ids.device)
        if not values.numel():  # torch resizes it in accumulation, impossible with numpy's memory
            ids, values = ids.clone(), values.clone()
        return torch.sparse_coo_tensor(ids, values, ctx.size, is_coalesced=True, check_invariants=False), None


def distinct(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct ids, ascending, and the index of each id; both int64."""
    if ids.numel() <= _MAX_SET and ids.device.type == "cpu" and not torch.is_grad_enabled():
        values = ids.tolist()
        index = {value: number for number, value in enumerate(sorted(set(values)))}
        return torch.tensor(list(index)).long(), torch.tensor([index[value] for value in values]).long()
    if ids.device.type == "cpu":  # numpy's vectorized sort is over ten times faster than torch's here
        used, inverse = np.unique(ids.numpy(), return_inverse=True)
        return torch.from_numpy(used.astype(np.int64, copy=False)), torch.from_numpy(inverse)
    used_ids, indices = torch.unique(ids, return_inverse=True)
    return used_ids.long(), indices


class HostEmbeddings(Embeddings):
    """Tables, and so optimizer state, that stay on the host when the model moves to a GPU: only rows of a batch move."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:  # noqa: ARG002 - torch's own name
        """Leave the tables unchanged; torch calls this for every move or type conversion."""
        return self
