"""Reasons for recommendations, and relations between items: by the model, or else by item features."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt

from recsys_cli.models.top_lists import rerank
from recsys_cli.serving.catalog import Catalog
from recsys_cli.serving.histories import History
from recsys_cli.serving.scoring import CatalogScorer
from recsys_cli.serving.served import ServedModel

_MOST_REASONS = 3
_MOST_HISTORY = 1_000
"""Latest items of a history searched for reasons."""

Ints = npt.NDArray[np.int64]


class Relations:
    """Similarities of the items of a catalog: of the model if it has any, else cosines of item features.

    Args:
        served: The model.
        catalog: Its catalog.
        scorer: Its scores.
    """

    def __init__(self, served: ServedModel, catalog: Catalog, scorer: CatalogScorer) -> None:
        self._served, self._catalog, self._scorer = served, catalog, scorer

    def between(self, places: Ints, others: Ints | None = None) -> npt.NDArray[np.float32] | None:
        """Return similarities, shape (H, K), of H to K candidates, or to all; None without vectors and features."""
        by_model = self._scorer.cosines(places, others)
        if by_model is not None:
            return by_model.numpy()
        vectors = self._served.features.vectors
        if vectors is None:
            return None
        rows = self._catalog.candidates
        similar: npt.NDArray[np.float32] = vectors[rows[places]] @ vectors[rows if others is None else rows[others]].T
        return similar

    def diverse(
        self, places: Ints, scores: npt.NDArray[np.float32], *, k: int, diversity: float
    ) -> npt.NDArray[np.intp] | None:
        """Return the positions of k diverse candidates among some, best first; None as for `between`."""
        similarities = self.between(places, places)
        return None if similarities is None else rerank(scores, similarities, k=k, diversity=diversity)

    def reasons(self, history: History, places: Ints) -> list[tuple[str, ...]]:
        """Return the reasons for recommended items: the nearest items of the history, else feature values in common."""
        met = self._catalog.places(history.items[-_MOST_HISTORY:])
        met = np.unique(met[met >= 0])
        if not len(met) or not len(places):
            return [() for _ in places]
        by_model = self._scorer.cosines(met, places)
        if by_model is None:
            return self._in_common(met, places)
        order = np.argsort(-by_model.numpy(), axis=0, kind="stable")[:_MOST_REASONS]
        return [
            tuple(self._catalog.label(int(self._catalog.candidates[met[row]])) for row in rows
                  if by_model[row, column] > 0)
            for column, rows in enumerate(order.T)
        ]  # fmt: skip

    def _in_common(self, met: Ints, places: Ints) -> list[tuple[str, ...]]:
        """Return the values of each item that are most frequent in the history."""
        features, rows = self._served.features, self._catalog.candidates
        counts = Counter(
            (name, value) for place in met for name, values in features.of(int(rows[place])).items() for value in values
        )
        found = []
        for place in places:
            own = [(name, v) for name, values in features.of(int(rows[place])).items() for v in values]
            best = sorted((pair for pair in own if counts[pair]), key=lambda pair: -counts[pair])
            found.append(tuple(value for _, value in best[:_MOST_REASONS]))
        return found
