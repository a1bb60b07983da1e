"""Optimizers of a model, and the moving average of its weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.swa_utils import get_ema_multi_avg_fn

from recsys_cli.config import TrainConfig
from recsys_cli.errors import TrainingError
from recsys_cli.models.embedding import ShardedEmbeddings
from recsys_cli.models.model import Model
from recsys_cli.training.row_optimizers import AdamW, RowAdagrad, RowAdam, RowOptimizer, RowSGD

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


_PREFIX = "average."
"""Prefix of averaged tensors in a checkpoint."""


class Average:
    """Exponential moving average of parameters and of the buffers of normalization layers.

    The decay of a step is min(decay, (1 + step) / (10 + step)), as in TensorFlow's ExponentialMovingAverage: a warm-up
    that quickly reduces the influence of the initial weights. `sparse` excludes embedding tables with sparse updates,
    because averaging touches every row.
    """

    def __init__(self, model: Model, *, decay: float, sparse: bool) -> None:
        self._decay = decay
        excluded = {id(table) for table in split(model)[0]} if sparse else set()
        named = [*model.named_parameters(), *model.named_buffers()]
        self._live = {name: one for name, one in named if id(one) not in excluded and one.is_floating_point()}
        self._averages = {name: tensor.detach().clone() for name, tensor in self._live.items()}

    def update(self, step: int) -> None:
        """Update with the weights after a step; `step` is the number of steps before it."""
        if not self._live:  # the model has only tables, all excluded
            return
        decay = min(self._decay, (1 + step) / (10 + step))
        get_ema_multi_avg_fn(decay)(list(self._averages.values()), list(self._live.values()), step)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Swap the averages into the model for the duration of a block; no tensor is copied."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def state(self) -> dict[str, Tensor]:
        """Return the averages under their names in a checkpoint."""
        return {_PREFIX + name: tensor for name, tensor in self._averages.items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Load the averages of a checkpoint; a `TrainingError` if it has none of these weights."""
        try:
            for name, tensor in self._averages.items():
                tensor.copy_(tensors[_PREFIX + name])
        except (KeyError, RuntimeError) as error:
            raise TrainingError(
                f"the checkpoint does not fit the average: {error}", hint="recsys train --force"
            ) from error

    def _swap(self) -> None:
        with torch.no_grad():
            for name, live in self._live.items():
                live.data, self._averages[name] = self._averages[name], live.data
