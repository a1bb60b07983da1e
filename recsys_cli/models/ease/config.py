"""Options of `ease`, without torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field, PositiveInt

from recsys_cli.models.options import HistoryOptions

WORK = 5e11
"""Maximum multiplications of a baseline, or of a candidate of `auto`: about ten seconds on two cores, under one on a GPU."""


class Config(HistoryOptions):
    """EASE: item-to-item weights of a linear autoencoder without self-similarity, in closed form; a strong baseline.

    After Steck, "Embarrassingly Shallow Autoencoders for Sparse Data" (2019).
    """

    search_space: ClassVar[Mapping[str, Any]] = {
        "model.regularization": {"low": 1.0, "high": 50_000.0, "log": True},
    }

    format: ClassVar[int] = 2

    regularization: float | None = Field(None, gt=0)
    """L2 penalty λ of the weights. None: chosen by leave-one-out cross-validation on train, from 1, 2, 5, …, 50,000."""
    max_items: PositiveInt | None = None
    """Number of items with weights, by popularity; all others score 0. None: as many as `memory_mib` allows. Time grows with the
    cube of the items; with few users, with the square of the users."""
    memory_mib: PositiveInt = 2_048
    """Memory budget of fitting in MiB: 2,048 MiB hold 18,900 items. Badly conditioned systems are solved in float64 where that
    fits, up to 12,300 items."""


def affordable_items(num_users: int) -> int:
    """Return the maximum number of items, for users times items squared within `WORK`; the memory is then 1.3 GB at most."""
    return max(1, math.isqrt(int(WORK / max(1, num_users))))
