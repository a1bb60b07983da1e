"""The cells of a bench: which model is trained with which seed, in what order, and how long those that are left will take."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from recsys_cli.config import BenchConfig, BenchModel
from recsys_cli.models import kind_of


@dataclass(frozen=True)
class BenchCell:
    """One run of a bench.

    Attributes:
        label: What the bench calls the model.
        model: The model.
        seed: What its training begins with.
        deterministic: Whether every seed comes to the same, so that this run counts for all of them.
    """

    label: str
    model: BenchModel
    seed: int
    deterministic: bool = False

    def __str__(self) -> str:
        return self.label if self.deterministic else f"{self.label}, seed {self.seed}"


def cells_of(wanted: BenchConfig) -> list[BenchCell]:
    """List all models with the first seed, then those with chance in them with the next.

    So a bench that is broken off has something of each model.
    """
    entries = [(*pair, _deterministic(pair[1].name)) for pair in zip(wanted.labels, wanted.models, strict=True)]
    first, *others = wanted.seeds
    return [
        *(BenchCell(label, model, first, deterministic) for label, model, deterministic in entries),
        *(
            BenchCell(label, model, seed)
            for seed in others
            for label, model, deterministic in entries
            if not deterministic
        ),
    ]


def seconds_left(left: Sequence[BenchCell], took: Mapping[str, Collection[float]]) -> float | None:
    """Reckon how long cells will take: as long as the same model with other seeds did, or as a model does on the mean.

    Args:
        left: The cells.
        took: Seconds of those that are done, by label.

    Returns:
        Seconds; None where nothing is done yet.
    """
    means = {label: statistics.fmean(seconds) for label, seconds in took.items() if seconds}
    if not means:
        return None
    usual = statistics.fmean(means.values())
    return sum(means.get(cell.label, usual) for cell in left)


def _deterministic(model: str) -> bool:
    try:
        return kind_of(model).deterministic
    except Exception:  # what is wrong with it is told when it is its turn
        return False
