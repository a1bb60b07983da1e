"""What a model is to the rest of the program."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor

from recsys_cli.batch import Batch


@runtime_checkable
class Model(Protocol):
    """A torch module built as `Model(config, schema)` that can be trained and asked for scores."""

    def loss(self, batch: Batch) -> Tensor:
        """Return what training minimises, the mean over the batch's rows: a scalar."""

    def score(self, batch: Batch) -> Tensor:
        """Return one logit a row, shape (B,), float32; higher is better. Needs no labels."""
