"""Grid of a bench: models × seeds."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from recsys_cli.config import BenchConfig, BenchModel
from recsys_cli.models import kind_of


@dataclass(frozen=True)
class BenchCell:
    """One run of a bench; that of a deterministic model counts for all seeds."""

    label: str
    model: BenchModel
    seed: int
    deterministic: bool = False

    def __str__(self) -> str:
        return self.label if self.deterministic else f"{self.label}, seed {self.seed}"


def cells_of(bench: BenchConfig) -> list[BenchCell]:
    """Return the cells in order: all models with the first seed, then the stochastic ones with each next seed.

    An interrupted bench thus has results of every model.
    """
    entries = [(*pair, _deterministic(pair[1].name)) for pair in zip(bench.labels, bench.models, strict=True)]
    first, *others = bench.seeds
    return [
        *(BenchCell(label, model, first, deterministic) for label, model, deterministic in entries),
        *(
            BenchCell(label, model, seed)
            for seed in others
            for label, model, deterministic in entries
            if not deterministic
        ),
    ]


def seconds_left(cells: Sequence[BenchCell], finished: Mapping[str, Collection[float]]) -> float | None:
    """Estimate the duration of remaining cells, by the mean of the same model, or of all models; None at first."""
    means = {label: statistics.fmean(seconds) for label, seconds in finished.items() if seconds}
    if not means:
        return None
    overall = statistics.fmean(means.values())
    return sum(means.get(cell.label, overall) for cell in cells)


def _deterministic(model: str) -> bool:
    try:
        return kind_of(model).deterministic
    except Exception:  # its own run reports the error
        return False
