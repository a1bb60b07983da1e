"""The parts of the tables that this process keeps, and how rows of all of them are got, read and written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torchrec import KeyedJaggedTensor
from torchrec.distributed.batched_embedding_kernel import BatchedFusedEmbedding
from torchrec.distributed.comm_ops import set_gradient_division

from recsys_cli.features.schema import PADDING
from recsys_cli.models.embedding.sharding_plan import Rule, TableShard, kernels_of, shard_tables, width_of

_MESSAGE = 1 << 22
"""Elements of a table that travel at a time when it is put together."""
_REMEMBERED = {"adam": ("exp_avg", "exp_avg_sq"), "adagrad": ("sum",), "sgd": ()}
"""What FBGEMM's optimizers remember of rows, in its order, by the names that ours have for it."""
WEIGHT = "weight"


@dataclass(frozen=True)
class _Part:
    """A part that is kept here.

    Attributes:
        shard: Which one it is.
        fields: The weights, and what is remembered of them: views of the kernels' memory, of shape (rows, columns).
    """

    shard: TableShard
    fields: dict[str, Tensor]


class Shards:
    """Tables of which each process keeps parts; what is said to be collective is called by all of them together.

    The optimizer is fused into the backward pass: rows and state change when their gradient arrives, and the gradient of a
    table never exists. What several processes have for one row is added up first.

    Args:
        shapes: Rows and width of each table, by name.
        rule: The optimizer.
        options: Its live parameter group: `lr` is the rate of the next step.
        device: Where the kernels run; parts may lie in host memory, with a cache on a GPU.

    Raises:
        ConfigError: The tables fit nowhere.
    """

    def __init__(
        self, shapes: Mapping[str, tuple[int, int]], rule: Rule, options: Mapping[str, Any], device: torch.device
    ) -> None:
        set_gradient_division(False)  # the loss is a sum over ranks already, and not a mean of means
        self.shapes = dict(shapes)
        self.rule = rule
        self.device = device
        self.steps = 0
        self._options = options
        self._collections, self._shards = shard_tables(shapes, rule, options, device)
        self._kernels = [kernel for collection in self._collections.values() for kernel in kernels_of(collection)]
        self._parts: dict[str, list[_Part]] = {name: [] for name in shapes}
        for kernel in self._kernels:
            self._find_parts(kernel)

    @property
    def remembered(self) -> tuple[str, ...]:
        """Names of what the optimizer remembers of rows."""
        return _REMEMBERED[self.rule]

    def rows(self, used: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return some rows of each table, shape (U, D), from wherever they are; collective, as is their backward pass.

        Args:
            used: For each name the ids, ascending without repeats; shape (U,), int64. Other ranks may ask for other ids.
        """
        if torch.is_grad_enabled():
            self._prepare_step()
        found: dict[str, Tensor] = {}
        for dim, collection in self._collections.items():
            names = [name for name in used if self.shapes[name][1] == dim]
            lengths = torch.tensor([used[name].numel() for name in names], device=self.device)
            ids = torch.cat([used[name] for name in names])
            rows = collection(KeyedJaggedTensor(keys=names, values=ids, lengths=lengths, stride=1))
            found |= {name: self._seen(name, rows[name].values(), used[name]) for name in names}
        return found

    def read(self, name: str, field: str = WEIGHT) -> Tensor:
        """Return a whole table, or what is remembered of it, in host memory; collective.

        It is put together on the first rank, piece by piece; on the others it is empty.
        """
        here = dist.get_rank()
        num_rows, width = self.shapes[name][0], self._width(name, field)
        whole = torch.empty((num_rows, width) if here == 0 else 0)
        self._settle()
        for shard in self._shards[name]:
            columns = slice(shard.column, min(shard.column + shard.columns, width))
            size = max(1, _MESSAGE // width)
            for start in range(0, shard.rows, size):
                rows = slice(start, min(start + size, shard.rows))
                if here not in {0, shard.rank}:
                    continue
                piece = self._piece(name, field, shard, rows, columns)
                if here == 0:
                    whole[shard.row + rows.start : shard.row + rows.stop, columns] = piece
        return whole.flatten() if field == "sum" else whole

    def write(self, name: str, values: Tensor, field: str = WEIGHT, *, ids: Tensor | None = None) -> None:
        """Replace a table, or what is remembered of it, or some rows of it: as far as they are kept here.

        Args:
            name: The table.
            values: By what; shape (U, D), or (U,) for one number a row.
            field: What to replace.
            ids: Which rows, each once; None for all, in order.
        """
        values = values.view(values.shape[0], -1)
        self._settle()
        for part in self._parts[name]:
            shard, target = part.shard, part.fields[field]
            columns = slice(shard.column, min(shard.column + shard.columns, values.shape[1]))
            target = target[:, : columns.stop - columns.start]
            if ids is None:
                target.copy_(values[shard.row : shard.row + shard.rows, columns])
            else:
                here = (ids >= shard.row) & (ids < shard.row + shard.rows)
                target[(ids[here] - shard.row).to(target.device)] = values[here][:, columns].to(target.device)
        for kernel in self._kernels:
            kernel.emb_module.reset_cache_states()

    def _prepare_step(self) -> None:
        """Tell the kernels the rate of this step, before its backward pass uses it."""
        for kernel in self._kernels:
            tables = kernel.emb_module
            tables.set_learning_rate(self._options["lr"] / self._stretch(kernel.config.embedding_tables[0].name))
            if self.rule == "adam":
                tables.set_optimizer_step(self.steps)
                tables.iter_cpu.fill_(self.steps)  # what its kernels count with: lookups that train nothing count, too
                # FBGEMM adds eps after the bias correction of the mean square, SparseAdam before it.
                correction = math.sqrt(1 - self._options["betas"][1] ** (self.steps + 1))
                tables.update_hyper_parameters({"eps": self._options["eps"] / correction})
        self.steps += 1

    def _seen(self, name: str, rows: Tensor, ids: Tensor) -> Tensor:
        """Return rows as the model sees them: without the columns that fill them up; padding gets no gradient."""
        rows = rows[:, : self.shapes[name][1]]
        if rows.requires_grad:
            factor = (ids != PADDING).unsqueeze(1) * self._stretch(name)
            rows.register_hook(lambda gradient: gradient * factor)
        return rows

    def _stretch(self, table: str) -> float:
        """Return what makes Adagrad's mean over a row that was filled up the mean over its own numbers."""
        # s·g has over the width the mean square that g has over dim: s² Σg²/width = Σg²/dim. Rates are divided by s in turn.
        dim = self.shapes[table][1]
        return math.sqrt(width_of(dim) / dim) if self.rule == "adagrad" else 1.0

    def _find_parts(self, kernel: BatchedFusedEmbedding) -> None:
        tables = kernel.config.embedding_tables
        weights = kernel.split_embedding_weights()
        states = kernel.emb_module.split_optimizer_states() if self.remembered else [[] for _ in tables]
        for table, weight, remembered in zip(tables, weights, states, strict=True):
            row, column = table.local_metadata.shard_offsets
            shard = next(p for p in self._shards[table.name] if (p.row, p.column) == (row, column))
            fields = {WEIGHT: weight, **dict(zip(self.remembered, remembered, strict=True))}
            views = {field: tensor.detach().view(shard.rows, -1) for field, tensor in fields.items()}
            self._parts[table.name].append(_Part(shard, views))

    def _piece(self, name: str, field: str, shard: TableShard, rows: slice, columns: slice) -> Tensor:
        """Return a piece of a part, on the rank that keeps it and on the first."""
        here, width = dist.get_rank(), columns.stop - columns.start
        if shard.rank != here:
            piece = torch.empty(rows.stop - rows.start, width)
            dist.recv(piece, shard.rank)
            return piece
        part = next(part for part in self._parts[name] if part.shard == shard)
        piece = part.fields[field][rows, :width].cpu().contiguous()
        if here != 0:
            dist.send(piece, 0)
        return piece

    def _width(self, name: str, field: str) -> int:
        return 1 if field == "sum" else self.shapes[name][1]

    def _settle(self) -> None:
        """Bring what lies in a GPU's cache back to where the parts are."""
        for kernel in self._kernels:
            kernel.flush()
