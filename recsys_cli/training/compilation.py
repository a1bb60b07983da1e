"""torch.compile for the loss: what is left out of it, how long it takes, and what is said where it cannot be done."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from recsys_cli.batch import Batch
from recsys_cli.errors import TrainingError
from recsys_cli.models.all_gather import AllGatherModule
from recsys_cli.models.embedding import Embeddings
from recsys_cli.models.model import Model


class CompiledLoss:
    """A model's loss, compiled when it is first computed, for batches of any size; the model's own tensors stay what they are.

    Left out are lookups (which rows a batch uses follows from its ids, and sparse gradients cannot be compiled) and what
    processes compute together.

    Args:
        model: Whose loss.

    Attributes:
        seconds: Time that compiling took so far, forward and backward pass together.
    """

    def __init__(self, model: Model) -> None:
        torch.compiler.reset()  # of one piece of code torch keeps few variants, and earlier models have had theirs
        for module in model.modules():
            if isinstance(module, Embeddings):
                module.lookups = torch.compiler.disable(module.lookups)  # type: ignore[method-assign]
            elif _stays(module):
                module.forward = torch.compiler.disable(module.forward)
        self._loss = torch.compile(model.loss, dynamic=True)
        self._started = 0.0
        self.seconds = 0.0

    def __call__(self, batch: Batch) -> Tensor:
        """Return the loss; the same as the model's up to rounding."""
        loss: Tensor = self._loss(batch)
        return loss

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Take the time of what is compiled meanwhile: the backward pass is when it is first run.

        Raises:
            TrainingError: Something could not be compiled.
        """
        from torch._dynamo.callback import (
            callback_handler,
        )  # torch.compile has loaded it; nobody else has to wait for it
        from torch._dynamo.exc import TorchDynamoException

        callback_handler.register_start_callback(self._begin)
        callback_handler.register_end_callback(self._end)
        try:
            yield
        except TorchDynamoException as error:
            reason = str(error).strip().partition("\n")[0]
            raise TrainingError(
                f"the model's loss cannot be compiled: {reason}",
                hint="set train.compile=false, or install what is missing: a C++ compiler (apt install g++), on a GPU also Triton",
            ) from error
        finally:
            callback_handler.remove_start_callback(self._begin)
            callback_handler.remove_end_callback(self._end)

    def _begin(self, _: object) -> None:
        self._started = time.perf_counter()

    def _end(self, _: object) -> None:
        self.seconds += time.perf_counter() - self._started


def _stays(module: nn.Module) -> bool:
    by_rows = isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse
    return by_rows or (isinstance(module, AllGatherModule) and module.gather is not None)
