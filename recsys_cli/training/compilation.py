"""torch.compile of the loss: excluded modules, compile time, errors."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from recsys_cli.batch import Batch
from recsys_cli.errors import TrainingError
from recsys_cli.models.all_gather import AllGatherModule
from recsys_cli.models.model import Model


class CompiledLoss:
    """The loss of a model, compiled on its first call for batches of any size; modifies the model.

    Excluded are embedding lookups (data-dependent shapes, sparse gradients) and modules with collectives. `seconds` is
    the compile time so far.
    """

    def __init__(self, model: Model) -> None:
        torch.compiler.reset()  # torch limits the compiled variants per code object; earlier models count
        for module in model.modules():
            for name in getattr(module, "uncompiled", ()) or (("forward",) if _is_excluded(module) else ()):
                setattr(module, name, torch.compiler.disable(getattr(module, name)))
        self._loss = torch.compile(model.loss, dynamic=True)
        self._started = 0.0
        self.seconds = 0.0

    def __call__(self, batch: Batch) -> Tensor:
        """Return the loss; equal to the uncompiled one up to rounding."""
        loss: Tensor = self._loss(batch)
        return loss

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Measure the compile time of a block; the backward pass is compiled on its first run.

        Raises:
            TrainingError: Compilation failed.
        """
        # Imported late: torch.compile has loaded both, and other runs skip the cost.
        from torch._dynamo.callback import callback_handler
        from torch._dynamo.exc import TorchDynamoException

        callback_handler.register_start_callback(self._begin)
        callback_handler.register_end_callback(self._end)
        try:
            yield
        except TorchDynamoException as error:
            reason = str(error).strip().partition("\n")[0]
            raise TrainingError(
                f"the model's loss cannot be compiled: {reason}",
                hint="set train.compile=false, or install a C++ compiler (apt install g++), and on a GPU Triton",
            ) from error
        finally:
            callback_handler.remove_start_callback(self._begin)
            callback_handler.remove_end_callback(self._end)

    def _begin(self, _: object) -> None:
        self._started = time.perf_counter()

    def _end(self, _: object) -> None:
        self.seconds += time.perf_counter() - self._started


def _is_excluded(module: nn.Module) -> bool:
    is_sparse = isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse
    return is_sparse or (isinstance(module, AllGatherModule) and module.gather is not None)
