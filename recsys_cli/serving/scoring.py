"""Scores of the whole catalog by user, history or popularity; relations between its items, and reasons from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from recsys_cli.evaluation.ranking import ModelScorer, cannot_rank
from recsys_cli.features.schema import FIRST
from recsys_cli.models.item_to_item import ItemToItemModel
from recsys_cli.models.model import TrainingContext
from recsys_cli.models.top_lists import fill_cold_slots, rerank
from recsys_cli.serving.catalog import Catalog
from recsys_cli.serving.histories import History
from recsys_cli.serving.served import ServedModel

Ints = npt.NDArray[np.int64]
MOST_USERS = 4_096
"""Maximum histories in one context; affects only memory and speed."""
_MOST_REASONS = 3
_MOST_HISTORY = 1_000
"""Latest items of a history searched for reasons."""


class CatalogScorer:
    """Scores users for all candidates of a catalog.

    A model with fold-in depends on a user only through the history. So its context has the users of a call only, with the
    ids FIRST, FIRST + 1, …; the cost of a call does not grow with the number of users.

    Args:
        served: The model.
        catalog: Its catalog.
    """

    def __init__(self, served: ServedModel, catalog: Catalog) -> None:
        self._served, self._model = served, served.model
        self._catalog = catalog
        self._cold = served.cold
        self._scorer = self.over(catalog.candidates)
        if self._model.folds_in:
            self._model.limit_users(FIRST + MOST_USERS)
            self._set_context([])
        else:
            self._model.set_context(TrainingContext(served.visible_interactions, served.tables.join))

    @cached_property
    def why_not(self) -> str | None:
        """The reason why the model cannot rank, as a clause without a full stop; None if it can."""
        return cannot_rank(self._model, self._served.tables, self._served.schema, device="cpu")

    def warm_up(self) -> None:
        """Compute a vector, so that a graph model propagates its graph before the first request."""
        if self._model.scoring == "dot_product":
            with torch.inference_mode():
                self._model.item_vectors(torch.from_numpy(self._catalog.candidates[:1]))

    @property
    def scores_subsets(self) -> bool:
        """Whether the scores of a few candidates are cheaper than those of the catalog."""
        return self._model.scoring == "pairs"

    def trained(self, user_idx: Ints, places: Ints | None = None) -> Tensor:
        """Return scores for encoded users, or table rows of cold-start users of a content-based model; (U, I).

        Args:
            user_idx: The users, shape (U,).
            places: Places of the only candidates to score, shape (I,); None for the catalog.
        """
        scorer = self._scorer if places is None else self.over(self._catalog.candidates[places])
        return scorer(user_idx)

    def folded(self, histories: Sequence[History], places: Ints | None = None) -> Tensor:
        """Return scores for histories; for at most `MOST_USERS` of them, shape (U, I)."""
        self.fold(histories)
        return self.trained(np.arange(FIRST, FIRST + len(histories)), places)

    def fill_slots(self, k: int, places: Ints | None, scores: Tensor) -> None:
        """Fill the cold slots of lists of k candidates, in place; see `fill_cold_slots`."""
        if slots := self._served.source.cold_slots:
            candidates = self._catalog.candidates if places is None else self._catalog.candidates[places]
            fill_cold_slots(scores, torch.from_numpy(self._cold.among(candidates)), slots=slots, k=k)

    def fold(self, histories: Sequence[History]) -> None:
        """Give a model with fold-in some users: FIRST for the first history, and so on."""
        with torch.inference_mode():
            self._set_context(histories)

    def popularity(self, num_users: int) -> Tensor:
        """Return train rows of the candidates, for each user; shape (U, I)."""
        return torch.from_numpy(self._catalog.counts).repeat(num_users, 1)

    def _by_model(self, places: Ints, others: Ints | None) -> Tensor | None:
        """Return cosines of item vectors, or item-item weights, shape (H, K); None for a model without both."""
        with torch.inference_mode():
            if self._model.scoring == "dot_product":
                vectors = self._scorer.item_vectors
                one = torch.nn.functional.normalize(vectors[places], dim=1)
                if others is not None:
                    return one @ torch.nn.functional.normalize(vectors[others], dim=1).T
                return (one @ vectors.T) / self._norms
            if isinstance(self._model, ItemToItemModel):
                rows = self._catalog.candidates if others is None else self._catalog.candidates[others]
                of = torch.from_numpy(self._catalog.candidates[places])
                return self._model.weights_between(of, torch.from_numpy(rows))
        return None

    @property
    def item_vectors(self) -> Tensor | None:
        """Vectors of the candidates, computed once; None for a model without vectors."""
        return self._scorer.item_vectors if self._model.scoring == "dot_product" else None

    def reuse(self, former: CatalogScorer, changed: Ints) -> None:
        """Take over the vectors of the first candidates from a scorer of them, but at `changed` places."""
        if former.item_vectors is not None:
            self._scorer.reuse(former._scorer, torch.from_numpy(changed))

    @cached_property
    def _norms(self) -> Tensor:
        return self._scorer.item_vectors.norm(dim=1).clamp(min=1e-12)

    def _set_context(self, histories: Sequence[History]) -> None:
        rows = self._cold.hidden(self._served.histories.together(histories))
        self._model.set_context(TrainingContext(lambda: rows, self._served.tables.join))

    def over(self, candidates: Ints) -> ModelScorer:
        """Return scores of the model for some candidates only."""
        served = self._served
        return ModelScorer(
            self._model, served.tables, served.schema, torch.from_numpy(candidates), batch_size=served.source.batch_size
        )

    def between(self, places: Ints, others: Ints | None = None) -> npt.NDArray[np.float32] | None:
        """Return similarities by the model if it has any, else by item features: shape (H, K); None without both.

        Args:
            places: Places of H candidates.
            others: Places of K candidates; None for the catalog.
        """
        by_model = self._by_model(places, others)
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
        """Return the reasons for items: the nearest items of the history, else the item itself or feature values in common."""
        met = self._catalog.places(history.items[-_MOST_HISTORY:])
        met = np.unique(met[met >= 0])
        if not len(met) or not len(places):
            return [() for _ in places]
        by_model = self._by_model(met, places)
        if by_model is None:
            return self._in_common(met, places)
        order = np.argsort(-by_model.numpy(), axis=0, kind="stable")[:_MOST_REASONS]
        return [
            tuple(self._catalog.label(int(self._catalog.candidates[met[row]])) for row in rows
                  if by_model[row, column] > 0)
            for column, rows in enumerate(order.T)
        ]  # fmt: skip

    def _in_common(self, met: Ints, places: Ints) -> list[tuple[str, ...]]:
        """Return the values of each item that are most frequent in the history; the name of an item that is in it."""
        features, rows = self._served.features, self._catalog.candidates
        counts = Counter(
            (name, value) for place in met for name, values in features.of(int(rows[place])).items() for value in values
        )
        found = []
        for place in places:
            own = [(name, v) for name, values in features.of(int(rows[place])).items() for v in values]
            best = sorted((pair for pair in own if counts[pair]), key=lambda pair: -counts[pair])
            values = tuple(value for _, value in best[:_MOST_REASONS])
            found.append((self._catalog.label(int(rows[place])),) if place in met else values)
        return found
