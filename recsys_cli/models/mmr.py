"""Reranking for diversity: maximal marginal relevance (Carbonell and Goldstein, SIGIR 1998)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

POOL = 4
"""Candidates of a reranking, in multiples of k."""
LEAST_POOL = 100
"""Minimum candidates of a reranking."""


def pool_size(k: int) -> int:
    """Return the number of best items to choose k diverse ones from."""
    return max(POOL * k, LEAST_POOL)


def rerank(
    scores: npt.NDArray[np.float32], similarities: npt.NDArray[np.float32], *, k: int, diversity: float
) -> npt.NDArray[np.intp]:
    """Return the indices of k items, each the best by (1 - d) relevance - d (largest similarity to those before).

    Relevance is the score, scaled to 0 to 1 among the candidates; ties go to the first. Similarities are scaled to at most 1,
    and negative ones count as 0: opposite items are not redundant.

    Args:
        scores: Scores of N candidates, best first.
        similarities: Similarity of each pair, such as cosines or item-item weights; shape (N, N).
        k: Number of items.
        diversity: d, from 0 to 1.
    """
    span = float(scores[0] - scores[-1]) if len(scores) else 0.0
    relevance = (scores - scores[-1]) / span if span > 0 else np.ones_like(scores)
    redundancy, largest = np.zeros_like(relevance), max(float(similarities.max(initial=0)), 1e-12)
    chosen: list[int] = []
    free = np.ones(len(scores), bool)
    for _ in range(min(k, len(scores))):
        value = np.where(free, (1 - diversity) * relevance - diversity * redundancy, -np.inf)
        best = int(value.argmax())
        chosen.append(best)
        free[best] = False
        redundancy = np.maximum(redundancy, similarities[best] / largest)
    return np.array(chosen, dtype=np.intp)
