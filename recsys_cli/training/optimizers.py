"""Optimizers of a model."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.optim import Optimizer

from recsys_cli.config import TrainConfig
from recsys_cli.models.embedding import ShardedEmbeddings
from recsys_cli.models.model import Model
from recsys_cli.training.rows import RowAdagrad, RowAdam, RowOptimizer, RowSGD
from recsys_cli.training.uncompiled import AdamW

_BY_ROWS: dict[str, Callable[..., RowOptimizer]] = {"adam": RowAdam, "adagrad": RowAdagrad, "sgd": RowSGD}


def build(model: Model, config: TrainConfig) -> list[Optimizer]:
    """Return the optimizers of a model, for joint steps.

    With dense gradients: one AdamW with two parameter groups; without weight decay it is Adam, bit for bit. With sparse
    gradients: the row-wise `embedding_optimizer` for tables and AdamW for the rest. Torch's fused kernel reads and
    writes each parameter once, the plain one about a dozen times.
    """
    tables, rest = split(model)
    table_rate = config.embedding_learning_rate or config.learning_rate
    dense = [{"params": rest, "lr": config.learning_rate, "weight_decay": config.weight_decay}] if rest else []
    if config.sparse_embeddings:
        sharded = [module for module in model.modules() if isinstance(module, ShardedEmbeddings)]
        if sharded:  # they update themselves; the optimizer only holds their options
            tables = [*tables, nn.Parameter(torch.zeros(0, 1))]
        by_rows: list[Optimizer] = [_BY_ROWS[config.embedding_optimizer](tables, lr=table_rate)] if tables else []
        for module in sharded:
            module.distribute(config.embedding_optimizer, by_rows[0].param_groups[0], model.device)
        return by_rows + ([AdamW(dense, fused=True)] if dense else [])
    if tables:
        dense.append({"params": tables, "lr": table_rate, "weight_decay": config.embedding_weight_decay})
    return [AdamW(dense, fused=True)]


def split(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Return the embedding tables, by module type, and all other parameters."""
    modules = (module for module in model.modules() if isinstance(module, nn.Embedding | nn.EmbeddingBag))
    tables = [module.get_parameter("weight") for module in modules]
    table_ids = {id(table) for table in tables}
    return tables, [parameter for parameter in model.parameters() if id(parameter) not in table_ids]
