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
    max_items: PositiveInt | None = None
    """Number of items with weights, the most popular ones; the others score 0. None: as many as `memory_mib` allows. Time grows
    with its cube, or with few users with the square of their number."""
    memory_mib: PositiveInt = 2_048
    """Memory budget of fitting in MiB. Weights are computed in float64 where that fits, else in float32: 2,048 MiB hold 12,000 and
    20,000 items."""
