"""Row-wise shards of embedding tables on the GPUs of all ranks: their plan, rows and state. Imports TorchRec."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from torch import Tensor, nn
from torchrec import EmbeddingCollection, EmbeddingConfig, KeyedJaggedTensor
from torchrec.distributed.batched_embedding_kernel import BatchedFusedEmbedding
from torchrec.distributed.comm_ops import set_gradient_division
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import PlannerError
from torchrec.distributed.types import ShardingEnv, ShardingType

from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import PADDING

Rule = Literal["adam", "adagrad", "sgd"]

for _name in ("torchrec", "torch.fx._symbolic_trace"):  # they log warnings about their own internals
    logging.getLogger(_name).setLevel(logging.ERROR)

_UNIT = 4
"""FBGEMM's kernels need widths that are multiples of this; other tables are padded with zero columns."""
_RESERVED = 0.15
"""Share of device memory reserved by the planner for all but tables."""
_OPTIMIZERS = {"adam": EmbOptimType.ADAM, "adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD, "sgd": EmbOptimType.EXACT_SGD}
_MESSAGE = 1 << 22
"""Table elements per message when a table is gathered."""
_STATE_FIELDS = {"adam": ("exp_avg", "exp_avg_sq"), "adagrad": ("sum",), "sgd": ()}
"""State of FBGEMM's optimizers per row, in FBGEMM's order, by the names of our optimizers."""
WEIGHT = "weight"


@dataclass(frozen=True)
class TableShard:
    """A shard of a table: its rank, first row and column, and size."""

    rank: int
    row: int
    column: int
    rows: int
    columns: int


def width_of(dim: int) -> int:
    """Return the padded table width."""
    return -(-dim // _UNIT) * _UNIT


def shard_tables(
    shapes: Mapping[str, tuple[int, int]], rule: Rule, options: Mapping[str, Any], device: torch.device
) -> tuple[dict[int, nn.Module], dict[str, list[TableShard]]]:
    """Plan the shards of tables, given by rows and width, and build their collections; collective.

    Returns:
        A sharded EmbeddingCollection per width, as its tables need equal widths; and the shards of each table.

    Raises:
        ConfigError: The tables exceed the memory of all devices.
    """
    whole = nn.ModuleDict({str(dim): _collection(shapes, dim) for dim in sorted({dim for _, dim in shapes.values()})})
    fused = {"optimizer": _OPTIMIZERS[rule], "learning_rate": options["lr"]}
    fused |= {"eps": options["eps"]} if "eps" in options else {}
    fused |= dict(zip(("beta1", "beta2"), options.get("betas", ()), strict=False))
    sharder = EmbeddingCollectionSharder(fused_params=fused)
    try:
        plan = _planner(shapes, rule, device).collective_plan(whole, [sharder], dist.group.WORLD)
    except PlannerError as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"the embedding tables cannot be sharded over {dist.get_world_size()} processes: {reason}",
            hint="use more processes or narrower tables, or set model.embedding.placement=host",
        ) from error
    environment = ShardingEnv.from_process_group(dist.group.WORLD)
    collections: dict[int, nn.Module] = {}
    shards: dict[str, list[TableShard]] = {}
    for dim, collection in whole.items():
        table_plans = plan.get_plan_for_module(dim)
        collections[int(dim)] = sharder.shard(collection, table_plans, environment, device)
        shards |= {name: _shards_of(table_plans[name]) for name in table_plans}
    return collections, shards


def kernels_of(collection: nn.Module) -> list[BatchedFusedEmbedding]:
    """Return the kernels with this process's shards of a collection."""
    # TorchRec keeps them outside the module tree; its own tools use the same private attribute.
    lookups: list[nn.Module] = collection._lookups  # type: ignore[assignment]
    modules = (module for lookup in lookups for module in lookup.modules())
    return [module for module in modules if isinstance(module, BatchedFusedEmbedding)]


def _collection(shapes: Mapping[str, tuple[int, int]], dim: int) -> EmbeddingCollection:
    tables = [
        EmbeddingConfig(name=name, num_embeddings=num_rows, embedding_dim=width_of(dim), feature_names=[name])
        for name, (num_rows, width) in shapes.items()
        if width == dim
    ]
    return EmbeddingCollection(tables=tables, device=torch.device("meta"))  # no whole table is ever allocated


def _planner(shapes: Mapping[str, tuple[int, int]], rule: Rule, device: torch.device) -> EmbeddingShardingPlanner:
    sharding_types, kernels = _constraints(rule, device)
    constraints = {
        name: ParameterConstraints(sharding_types=sharding_types, compute_kernels=kernels) for name in shapes
    }
    local_world_size = int(os.environ.get("LOCAL_WORLD_SIZE", dist.get_world_size()))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // local_world_size
    on_device = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else None
    topology = Topology(
        world_size=dist.get_world_size(), local_world_size=local_world_size, compute_device=device.type,
        hbm_cap=on_device, ddr_cap=memory,
    )  # fmt: skip
    return EmbeddingShardingPlanner(
        topology=topology, constraints=constraints, storage_reservation=FixedPercentageStorageReservation(_RESERVED)
    )


def _constraints(rule: Rule, device: torch.device) -> tuple[list[str], list[str]]:
    """Return the allowed sharding types and compute kernels.

    Row-wise Adagrad needs whole rows: a column shard would have another mean square.
    """
    sharding_types = [ShardingType.TABLE_WISE.value]
    sharding_types += [ShardingType.COLUMN_WISE.value] if rule != "adagrad" else []
    kernels = [EmbeddingComputeKernel.FUSED.value]
    if device.type == "cuda":
        sharding_types.append(ShardingType.ROW_WISE.value)
        kernels.append(EmbeddingComputeKernel.FUSED_UVM_CACHING.value)
    return sharding_types, kernels


def _shards_of(sharding: Any) -> list[TableShard]:
    return [
        TableShard(shard.placement.rank(), *shard.shard_offsets, *shard.shard_sizes)
        for shard in sharding.sharding_spec.shards
    ]


@dataclass(frozen=True)
class _LocalShard:
    """A shard of this process: weights and optimizer state are views of the kernels' memory, of shape (rows, columns)."""

    shard: TableShard
    fields: dict[str, Tensor]


class Shards:
    """Tables sharded over processes; every process takes part in a collective method.

    The optimizer is fused into the backward pass: no table's gradient is ever stored, and gradients of several
    processes for one row are summed first. Shards may be in host memory, with a cache on a GPU.
    """

    def __init__(
        self, shapes: Mapping[str, tuple[int, int]], rule: Rule, options: Mapping[str, Any], device: torch.device
    ) -> None:
        set_gradient_division(False)  # the loss is already a sum over ranks, not a mean of means
        self.shapes = dict(shapes)
        self.rule = rule
        self.device = device
        self.steps = 0
        self._options = options
        self._collections, self._shards = shard_tables(shapes, rule, options, device)
        self._kernels = [kernel for collection in self._collections.values() for kernel in kernels_of(collection)]
        self._local: dict[str, list[_LocalShard]] = {name: [] for name in shapes}
        for kernel in self._kernels:
            self._register(kernel)

    @property
    def state_fields(self) -> tuple[str, ...]:
        """Names of the optimizer's state per row."""
        return _STATE_FIELDS[self.rule]

    def rows(self, used: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return rows of each table, shape (U, D), with ids as of `Embeddings.rows`; collective, as is the backward pass.

        Ids may differ between ranks.
        """
        if torch.is_grad_enabled():
            self._prepare_step()
        results: dict[str, Tensor] = {}
        for dim, collection in self._collections.items():
            names = [name for name in used if self.shapes[name][1] == dim]
            lengths = torch.tensor([used[name].numel() for name in names], device=self.device)
            ids = torch.cat([used[name] for name in names])
            rows = collection(KeyedJaggedTensor(keys=names, values=ids, lengths=lengths, stride=1))
            results |= {name: self._unpadded(name, rows[name].values(), used[name]) for name in names}
        return results

    def read(self, name: str) -> Tensor:
        """Return a whole table, in host memory on the first rank, empty on others; collective."""
        own_rank = dist.get_rank()
        num_rows, width = self.shapes[name]
        whole = torch.empty((num_rows, width) if own_rank == 0 else 0)
        self._flush()
        for shard in self._shards[name]:
            columns = slice(shard.column, min(shard.column + shard.columns, width))
            size = max(1, _MESSAGE // width)
            for start in range(0, shard.rows, size):
                rows = slice(start, min(start + size, shard.rows))
                if own_rank not in {0, shard.rank}:
                    continue
                block = self._block(name, shard, rows, columns)
                if own_rank == 0:
                    whole[shard.row + rows.start : shard.row + rows.stop, columns] = block
        return whole

    def local(self, name: str, field: str) -> Iterator[tuple[int, int, Tensor]]:
        """Yield first row, first column and values of this process's shards, of shape (rows,) for one number per row."""
        width = 1 if field == "sum" else self.shapes[name][1]
        self._flush()
        for local in self._local[name]:
            values = local.fields[field][:, : max(0, width - local.shard.column)]
            if values.numel():
                yield local.shard.row, local.shard.column, values[:, 0] if field == "sum" else values

    def write(
        self, name: str, values: Tensor, field: str = WEIGHT, *,
        ids: Tensor | None = None, row: int = 0, column: int = 0,
    ) -> None:  # fmt: skip
        """Replace what this process has of a part of a table or of its optimizer state, in all rows or in those of distinct ids.

        Values have shape (U, D), or (U,) for one number per row, and begin at a row and column; those on the device meta are
        ignored.
        """
        if values.is_meta:
            return
        values = values.view(values.shape[0], -1)
        self._flush()
        for local in self._local[name]:
            shard, target = local.shard, local.fields[field]
            first, last = max(shard.column, column), min(shard.column + shard.columns, column + values.shape[1])
            top, bottom = max(shard.row, row), min(shard.row + shard.rows, row + values.shape[0])
            if first >= last or (ids is None and top >= bottom):
                continue
            target = target[:, first - shard.column : last - shard.column]
            found = values[:, first - column : last - column]
            if ids is None:
                target[top - shard.row : bottom - shard.row].copy_(found[top - row : bottom - row])
            else:
                inside = (ids >= shard.row) & (ids < shard.row + shard.rows)
                target[(ids[inside] - shard.row).to(target.device)] = found[inside].to(target.device)
        for kernel in self._kernels:
            kernel.emb_module.reset_cache_states()

    def _prepare_step(self) -> None:
        """Pass the learning rate of this step to the kernels, before its backward pass."""
        for kernel in self._kernels:
            tables = kernel.emb_module
            tables.set_learning_rate(self._options["lr"] / self._scale(kernel.config.embedding_tables[0].name))
            if self.rule == "adam":
                tables.set_optimizer_step(self.steps)
                tables.iter_cpu.fill_(self.steps)  # the kernels' step count, which includes lookups without training
                # FBGEMM adds eps after the bias correction of the mean square, SparseAdam before it.
                correction = math.sqrt(1 - self._options["betas"][1] ** (self.steps + 1))
                tables.update_hyper_parameters({"eps": self._options["eps"] / correction})
        self.steps += 1

    def _unpadded(self, name: str, rows: Tensor, ids: Tensor) -> Tensor:
        """Return rows without filler columns, and with a hook that zeroes the gradient of the padding id."""
        rows = rows[:, : self.shapes[name][1]]
        if rows.requires_grad:
            factor = (ids != PADDING).unsqueeze(1) * self._scale(name)
            rows.register_hook(lambda gradient: gradient * factor)
        return rows

    def _scale(self, table: str) -> float:
        """Return the gradient scale that makes Adagrad's mean square ignore filler columns."""
        # s·g has over the width the mean square that g has over dim: s² Σg²/width = Σg²/dim. Rates are divided by s in turn.
        dim = self.shapes[table][1]
        return math.sqrt(width_of(dim) / dim) if self.rule == "adagrad" else 1.0

    def _register(self, kernel: BatchedFusedEmbedding) -> None:
        tables = kernel.config.embedding_tables
        weights = kernel.split_embedding_weights()
        states = kernel.emb_module.split_optimizer_states() if self.state_fields else [[] for _ in tables]
        for table, weight, state in zip(tables, weights, states, strict=True):
            row, column = table.local_metadata.shard_offsets
            shard = next(p for p in self._shards[table.name] if (p.row, p.column) == (row, column))
            fields = {WEIGHT: weight, **dict(zip(self.state_fields, state, strict=True))}
            views = {field: tensor.detach().view(shard.rows, -1) for field, tensor in fields.items()}
            self._local[table.name].append(_LocalShard(shard, views))

    def _block(self, name: str, shard: TableShard, rows: slice, columns: slice) -> Tensor:
        """Return a block of a shard, on its own rank and on the first."""
        own_rank, width = dist.get_rank(), columns.stop - columns.start
        if shard.rank != own_rank:
            block = torch.empty(rows.stop - rows.start, width)
            dist.recv(block, shard.rank)
            return block
        local = next(local for local in self._local[name] if local.shard == shard)
        block = local.fields[WEIGHT][rows, :width].cpu().contiguous()
        if own_rank != 0:
            dist.send(block, 0)
        return block

    def _flush(self) -> None:
        for kernel in self._kernels:
            kernel.flush()
