"""From how often values occur to what is drawn: who is popular, who is active, and how fast a vocabulary grows."""

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
    """Describe how often values occur; None where there is no value.

    Args:
        counts: Rows of each value; those of 0 are no values.
    """
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
    """Work out how many distinct values one expects in a part of the rows; None where there is no value.

    A value that occurs c times is seen with probability 1 - (1 - p)^c where each row is read with probability p: the
    rarefaction curve of ecology (Heck, van Belle and Simberloff, 1975). It needs no order of the rows, and no second look at them.

    Args:
        counts: Rows of each value; those of 0 are no values.
        rows: How many rows there are.
    """
    sizes, how_many = np.unique(counts[counts > 0], return_counts=True)
    if not len(sizes):
        return None
    parts = np.linspace(0, 1, _GROWTH_POINTS + 1) ** 2  # it rises fastest at the beginning
    seen = np.array([_expected(part, sizes, how_many) for part in parts])
    return Growth(
        rows=tuple((parts * rows).round().astype(np.int64).tolist()),
        values=tuple(seen.tolist()),
        last_tenth=float(1 - _expected(0.9, sizes, how_many) / seen[-1]),
    )


def _expected(part: float, sizes: Counts, how_many: npt.NDArray[np.intp]) -> float:
    return float(((1 - (1 - part) ** sizes) * how_many).sum())
