"""What a metric is: a name, how to compute it over many resamples or users at once, and how to read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from recsys_cli.evaluation.tally import Floats, Tally

Better = Literal["higher", "lower", "one"]
"""Which values are better; `one` where 1 is right."""


@dataclass(frozen=True)
class PointwiseMetric:
    """A figure of scores against labels.

    Attributes:
        name: As in evaluation.json.
        title: As in tables.
        better: Which values are better.
        compute: From a tally of R weightings to R figures; NaN where it is not defined.
        biased: Whether noise only ever adds to the figure, as to a mean of absolute errors; `bootstrap` allows for it.
    """

    name: str
    title: str
    better: Better
    compute: Callable[[Tally], Floats]
    biased: bool = False


@dataclass(frozen=True)
class Hits:
    """What the rankings of U users found.

    Attributes:
        hits: Whether place p of user u's ranking holds something relevant; shape (U, P), P at least the largest cut-off.
        num_relevant: How much there was to find, at least 1, shape (U,).
    """

    hits: npt.NDArray[np.bool_]
    num_relevant: npt.NDArray[np.int64]


@dataclass(frozen=True)
class RankingMetric:
    """A figure of a user's ranking, cut off after k places; the mean over users is what is reported.

    Attributes:
        name: As in evaluation.json, where "@k" is added.
        title: As in tables.
        compute: From hits of U users and k to U figures between 0 and 1.
    """

    name: str
    title: str
    compute: Callable[[Hits, int], Floats]
