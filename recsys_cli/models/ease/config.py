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

    regularization: float | None = Field(None, gt=0)
    """L2 penalty of the weights, λ. None: chosen by leave-one-out cross-validation on train, from 1, 2, 5, …, 50,000."""
    max_items: PositiveInt = 10_000
    """How many items have weights, the ones that most users have met; the others score 0. Memory grows with its square, and time
    with its cube, or, where users are fewer, with the square of their number."""
