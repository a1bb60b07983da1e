"""Options of the `ease` model. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, PositiveInt

from recsys_cli.models.options import HistoryOptions


class Config(HistoryOptions):
    """Weights between items by which each is told best from the others that its users have met; closed form, hard to beat.

    After Steck, "Embarrassingly Shallow Autoencoders for Sparse Data" (2019).
    """

    train_defaults: ClassVar[dict[str, Any]] = {"monitor": "ndcg@10"}

    regularization: float = Field(50.0, gt=0)
    """How much the squares of the weights cost, λ: in the range of 50 for a small set to 1000 for a large one."""
    max_items: PositiveInt = 10_000
    """How many items have weights, the ones that most users have met; the others score 0. Memory grows with its square, and time
    with its cube, or, where users are fewer, with the square of their number."""
