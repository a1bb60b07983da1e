"""Exponential moving average (EMA) of the weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

from recsys_cli.errors import TrainingError
from recsys_cli.models.model import Model
from recsys_cli.training import optimizers

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
        excluded = {id(table) for table in optimizers.split(model)[0]} if sparse else set()
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
