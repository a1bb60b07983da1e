"""Popularity of items, activity of users and growth of vocabularies, from value counts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from recsys_cli.etl.report.facts import Frequency, Growth

Counts = npt.NDArray[np.int64]
_HEADS = {"0.01": 100, "0.1": 10}
_POINTS = 120
_BINS = 32
_GROWTH_POINTS = 30


def frequency(counts: Counts) -> Frequency | None:
    """Return the distribution of value counts, zeros ignored; None without values."""
    ordered = np.sort(counts[counts > 0])[::-1]
    if not len(ordered):
        return None
    positions = np.unique(np.geomspace(1, len(ordered), _POINTS).round().astype(np.int64))
    most = int(ordered[0])
    edges = np.unique(np.geomspace(1, most + 1, _BINS + 1).round().astype(np.int64))
    total = int(ordered.sum())
    return Frequency(
        distinct=len(ordered),
        rows=total,
        least=int(ordered[-1]),
        median=float(np.median(ordered)),
        most=most,
        once=int(np.count_nonzero(ordered == 1)),
        head={name: int(ordered[: -(-len(ordered) // part)].sum()) / total for name, part in _HEADS.items()},
        ranks=tuple(positions.tolist()),
        counts=tuple(ordered[positions - 1].tolist()),
        edges=tuple(edges.tolist()),
        heights=tuple(np.histogram(ordered, edges)[0].tolist()),
    )


def growth(counts: Counts, rows: int) -> Growth | None:
    """Return the expected distinct values in a random part of the rows, from value counts; None without values.

    In a sample of rows with probability p, a value with count c occurs with probability 1 - (1 - p)^c: the rarefaction
    curve of ecology (Heck, van Belle and Simberloff, 1975). It needs only the counts, not the rows.
    """
    sizes, multiplicities = np.unique(counts[counts > 0], return_counts=True)
    if not len(sizes):
        return None
    parts = np.linspace(0, 1, _GROWTH_POINTS + 1) ** 2  # denser at the steep start of the curve
    seen = np.array([_expected(part, sizes, multiplicities) for part in parts])
    return Growth(
        rows=tuple((parts * rows).round().astype(np.int64).tolist()),
        values=tuple(seen.tolist()),
        last_tenth=float(1 - _expected(0.9, sizes, multiplicities) / seen[-1]),
    )


def _expected(part: float, sizes: Counts, multiplicities: npt.NDArray[np.intp]) -> float:
    return float(((1 - (1 - part) ** sizes) * multiplicities).sum())
