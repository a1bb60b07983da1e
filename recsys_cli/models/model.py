"""What a model is to the rest of the program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn

from recsys_cli.batch import Batch
from recsys_cli.models.embedding import Embeddings


class Model(nn.Module, ABC):
    """A torch module that can be trained and asked for scores.

    A model is built as `Model(config, schema, sparse=False)`: its own Config, the prepared columns, and whether the
    gradients of its embedding tables shall be sparse tensors, which is what `train.sparse` asks for. Tables are
    `nn.Embedding` or `nn.EmbeddingBag` modules: that is how the optimizers tell them from the rest. A model that can keep
    them elsewhere than on its device takes `placement` as well, and hands it to `models.embedding.embed`. Batch normalisation
    is `models.batch_norm.BatchNorm`, which sees the rows of all processes that train together.

    Attributes:
        device: Where it computes, and where batches have to be; its tables may be elsewhere.
    """

    device = torch.device("cpu")

    @property
    def num_parameters(self) -> int:
        """How many numbers are learnt, wherever they are kept."""
        elsewhere = sum(module.elsewhere for module in self.modules() if isinstance(module, Embeddings))
        return elsewhere + sum(parameter.numel() for parameter in self.parameters())

    @abstractmethod
    def score(self, batch: Batch) -> Tensor:
        """Return one logit a row, shape (B,), float32; higher is better. Needs no labels."""

    @abstractmethod
    def loss(self, batch: Batch, *, scores: Tensor | None = None) -> Tensor:
        """Return what training minimises, the mean over the batch's rows of weight * loss: a float32 scalar.

        The sum is divided by the number of rows and not by that of the weights, so that parts of a batch and ranks add up.

        Args:
            batch: With labels.
            scores: What `score(batch)` returned, where the caller has it already; saves validation a second pass.
        """

    def forward(self, batch: Batch) -> Any:
        """Return `score(batch)`: torch's own name for it."""
        return self.score(batch)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Keep in mind where the model goes; everything that moves a module comes through here."""
        self.device = fn(torch.empty(0, device=self.device)).device
        return super()._apply(fn, recurse)
