"""The sharding plan of embedding tables, by TorchRec's planner.

Only this file and `shards.py` import TorchRec; both are imported only for sharded tables.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from torch import nn
from torchrec import EmbeddingCollection, EmbeddingConfig
from torchrec.distributed.batched_embedding_kernel import BatchedFusedEmbedding
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import PlannerError
from torchrec.distributed.types import ShardingEnv, ShardingType

from recsys_cli.errors import ConfigError

Rule = Literal["adam", "adagrad", "sgd"]

for _name in ("torchrec", "torch.fx._symbolic_trace"):  # they log warnings about their own internals
    logging.getLogger(_name).setLevel(logging.ERROR)

_UNIT = 4
"""FBGEMM's kernels need widths that are multiples of this; other tables are padded with zero columns."""
_RESERVED = 0.15
"""Share of device memory reserved by the planner for all but tables."""
_OPTIMIZERS = {"adam": EmbOptimType.ADAM, "adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD, "sgd": EmbOptimType.EXACT_SGD}


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
