"""The moving average of the weights, beside the model that is trained: steadier from step to step, and often the better model."""

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
"""What the names of averaged tensors begin with in a checkpoint."""


class Average:
    """An exponential moving average of parameters and of what normalisation layers have seen.

    In the first steps it keeps less of itself, so that the weights at the start are soon forgotten: min(decay,
    (1 + step) / (10 + step)), which is the rule of TensorFlow's ExponentialMovingAverage.

    Args:
        model: On its device, at its start.
        decay: What the average keeps of itself in a step, at most.
        sparse: Whether embedding tables are updated by rows: they are left out then, as averaging touches every row.
    """

    def __init__(self, model: Model, *, decay: float, sparse: bool) -> None:
        self._decay = decay
        left_out = {id(table) for table in optimizers.split(model)[0]} if sparse else set()
        named = [*model.named_parameters(), *model.named_buffers()]
        self._live = {name: one for name, one in named if id(one) not in left_out and one.is_floating_point()}
        self._kept = {name: tensor.detach().clone() for name, tensor in self._live.items()}

    def update(self, step: int) -> None:
        """Take in the weights after a step; `step` steps were made before it."""
        if not self._live:  # a model of tables alone, which are left out
            return
        decay = min(self._decay, (1 + step) / (10 + step))
        get_ema_multi_avg_fn(decay)(list(self._kept.values()), list(self._live.values()), step)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Let the model be the average for a while; nothing is copied."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def state(self) -> dict[str, Tensor]:
        """Return what a checkpoint needs to keep."""
        return {_PREFIX + name: tensor for name, tensor in self._kept.items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from what a checkpoint kept.

        Raises:
            TrainingError: It kept no average of these weights.
        """
        try:
            for name, tensor in self._kept.items():
                tensor.copy_(tensors[_PREFIX + name])
        except (KeyError, RuntimeError) as error:
            raise TrainingError(
                f"the checkpoint does not fit the average: {error}", hint="recsys train --force"
            ) from error

    def _swap(self) -> None:
        with torch.no_grad():
            for name, live in self._live.items():
                live.data, self._kept[name] = self._kept[name], live.data
