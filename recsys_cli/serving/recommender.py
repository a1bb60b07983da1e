"""Recommendations on request, from a run or a bundle: histories, filters, fallback, diversity, reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from recsys_cli.errors import RecsysError
from recsys_cli.evaluation.ranking import BLOCK_SCORES
from recsys_cli.interactions import Interactions
from recsys_cli.models.top_lists import pool_size, top_places
from recsys_cli.serving.catalog import Catalog
from recsys_cli.serving.query import NO_RECENT, Answer, CatalogItem, Query, Recent, RecommendedItem
from recsys_cli.serving.reasons import Relations
from recsys_cli.serving.requests import Request, Resolver
from recsys_cli.serving.rows import RowScorer
from recsys_cli.serving.scoring import MOST_USERS, CatalogScorer
from recsys_cli.serving.served import ServedModel
from recsys_cli.workspace import TrainedRun, Workspace

_LARGE_K = 1_000
"""Queries with a larger k are ranked one by one: a block is sorted for its largest k."""


class Recommender:
    """Answers queries with one model; not thread-safe, calls come from one thread.

    Args:
        served: The model, its catalog and the user histories.
    """

    def __init__(self, served: ServedModel) -> None:
        self.served = served
        self.catalog = Catalog(served)
        self.scorer = CatalogScorer(served, self.catalog)
        self.relations = Relations(served, self.catalog, self.scorer)
        self._resolver = Resolver(served, self.catalog, why_not=self.scorer.why_not)
        self.rows = RowScorer(served, self.scorer)

    @classmethod
    def of_run(cls, run: TrainedRun, workspace: Workspace, *, only: Interactions | None = None) -> Recommender:
        """Load a finished run; see `ServedModel.of_run`."""
        return cls(ServedModel.of_run(run, workspace, only=only))

    def warm_up(self) -> None:
        """Compute the parts that all requests share: the row encoder, and the propagated graph of a graph model."""
        with suppress(RecsysError):  # requests raise it
            self.rows.warm_up()
        self.scorer.warm_up()

    def recommend(self, queries: Sequence[Query]) -> list[Answer]:
        """Answer queries in order; plain queries in one call of the model.

        Raises:
            ConfigError: A query is invalid.
            TrainingError: A score is not finite.
        """
        requests = self._resolver.resolve(queries)
        answers: dict[int, Answer] = {}
        for rows in self._blocks(requests):
            answers.update(zip(rows, self._answer([requests[row] for row in rows]), strict=True))
        return [answers[row] for row in range(len(requests))]

    def score(self, rows: Mapping[str, Sequence[Any]], recent: Recent = NO_RECENT) -> npt.NDArray[np.float32]:
        """Score raw rows, given as columns of equal length; shape (N,).

        Args:
            rows: The columns.
            recent: Interactions after training, added to the stored histories by time.

        Raises:
            DataError: A column is missing, or a value does not fit its type.
            TrainingError: A score is not finite.
        """
        return self.rows.score(rows, recent)

    def similar(self, item: Any, k: int) -> Answer:
        """Return the nearest items of an item: by item vectors, item-item weights, or else features."""
        place = int(self.catalog.places_of([item])[0])
        if place < 0:
            return Answer((), "none", note=f"item {item} is unknown")
        between = self.relations.between(np.array([place]))
        if between is None:
            return Answer((), "none", note=f"{self.served.source.name} has no item vectors, and items have no features")
        best = np.argsort(-between[0], kind="stable")
        best = best[best != place][: max(0, k)]
        items = tuple(RecommendedItem(self.catalog.item(int(one)), float(between[0, one])) for one in best)
        return Answer(items, "model" if items else "none")

    def search(self, text: str, k: int) -> list[CatalogItem]:
        """Return items by a part of their title or id, most popular first."""
        return self.catalog.search(text, k)

    def history(self, user: Any, k: int) -> list[CatalogItem]:
        """Return the latest items of a user's stored history, newest first; none for an unknown user."""
        encoded = int(self.served.users.encode([user])[0])
        places = self.catalog.places(self.served.histories.of_user(encoded).items)
        return [self.catalog.item(int(place)) for place in places[places >= 0][::-1][: max(0, k)]]

    def users(self, k: int) -> list[Any]:
        """Return raw ids of users of train, at most k."""
        ids: list[Any] = self.served.users.values[: min(max(0, k), self.served.users.num_train)].to_pylist()
        return ids

    @property
    def inputs(self) -> tuple[str, ...]:
        """Raw columns of `score`."""
        return self.rows.inputs

    @property
    def optional_inputs(self) -> tuple[str, ...]:
        """Further raw columns of `score`; see `RowScorer.optional_inputs`."""
        return self.rows.optional_inputs

    def check(self, query: Query) -> None:
        """Check a query.

        Raises:
            ConfigError: It is invalid.
        """
        self._resolver.resolve([query])

    def places(self, query: Query) -> npt.NDArray[np.int64] | None:
        """Return the places that the filters of a query leave, ascending; None for the catalog."""
        (request,) = self._resolver.resolve([query])
        if request.allowed is None and not len(request.excluded):
            return None
        allowed = np.arange(len(self.catalog)) if request.allowed is None else request.allowed
        return np.setdiff1d(allowed, request.excluded)

    def _blocks(self, requests: Sequence[Request]) -> Iterator[list[int]]:
        """Yield rows of requests that share a call of the model, in blocks of bounded memory."""
        shared: dict[str, list[int]] = {}
        for row, request in enumerate(requests):
            by_itself = request.scores == "rows" or request.query.k > _LARGE_K
            by_itself |= request.allowed is not None and self.scorer.scores_subsets
            if by_itself:
                yield [row]
            else:
                shared.setdefault(request.scores, []).append(row)
        size = min(MOST_USERS, max(1, BLOCK_SCORES // max(1, len(self.catalog))))
        for rows in shared.values():
            yield from (rows[start : start + size] for start in range(0, len(rows), size))

    def _answer(self, requests: Sequence[Request]) -> list[Answer]:
        """Answer a block of requests with scores of one origin."""
        subset = requests[0].allowed if len(requests) == 1 and self.scorer.scores_subsets else None
        if not len(self.catalog) or (subset is not None and not len(subset)):
            return [self._built(request, np.empty(0, np.int64), np.empty(0, np.float32)) for request in requests]
        with torch.inference_mode():
            scores = self._scores(requests, subset)
            hidden = [_hidden(request, subset, scores.shape[1]) for request in requests]
            rows = np.repeat(np.arange(len(hidden)), [len(places) for places in hidden])
            scores[torch.from_numpy(rows), torch.from_numpy(np.concatenate(hidden))] = -torch.inf
            wanted = max(_wanted(request) for request in requests)
            top = top_places(scores, min(wanted, scores.shape[1]))
            best, values = top.numpy(), scores.gather(1, top).numpy()
        answers = []
        for row, request in enumerate(requests):
            num = min(_wanted(request), int(np.count_nonzero(values[row] > -np.inf)))
            places = best[row, :num] if subset is None else subset[best[row, :num]]
            answers.append(self._built(request, places, values[row, :num]))
        return answers

    def _scores(self, requests: Sequence[Request], subset: npt.NDArray[np.int64] | None) -> Tensor:
        """Return scores that may be overwritten, (U, I); of the subset if there is one."""
        match requests[0].scores:
            case "popularity":
                scores = self.scorer.popularity(len(requests))
                return scores if subset is None else scores[:, torch.from_numpy(subset)]
            case "rows":
                places = np.arange(len(self.catalog)) if subset is None else subset
                return self.rows.of_candidates(requests[0], self.catalog.candidates[places])
            case "history":
                return self.scorer.folded([request.history for request in requests], subset)
        return self.scorer.trained(np.array([request.user_idx for request in requests]), subset)

    def _built(self, request: Request, places: npt.NDArray[np.int64], scores: npt.NDArray[np.float32]) -> Answer:
        """Build an answer from the best places."""
        query = request.query
        if query.diversity and len(places):
            chosen = self.relations.diverse(places, scores, k=query.k, diversity=query.diversity)
            if chosen is None:
                request.notes.append("no diversity: the items have neither vectors nor features")
                chosen = np.arange(min(query.k, len(places)))
            places, scores = places[chosen], scores[chosen]
        explained = query.explain and request.source != "popularity"
        reasons = self.relations.reasons(request.history, places) if explained else [()] * len(places)
        items = tuple(
            RecommendedItem(self.catalog.item(int(place)), float(score), because)
            for place, score, because in zip(places, scores, reasons, strict=True)
        )
        num_seen = len(request.seen) if request.allowed is None else len(np.intersect1d(request.seen, request.allowed))
        if not items:
            request.notes.append(_why_empty(request, num_seen))
        return Answer(items, request.source if items else "none", num_seen, "; ".join(request.notes) or None)


def _wanted(request: Request) -> int:
    """Return the number of best items of a request: k, or more for a reranking."""
    return pool_size(request.query.k) if request.query.diversity else int(request.query.k)


def _hidden(request: Request, subset: npt.NDArray[np.int64] | None, width: int) -> npt.NDArray[np.int64]:
    """Return the columns of the scores that may not be ranked."""
    out = np.concatenate([request.seen, request.excluded])
    if subset is not None:
        return np.flatnonzero(np.isin(subset, out))
    if request.allowed is None:
        return out
    mask = np.ones(width, bool)
    mask[request.allowed] = False
    mask[out] = True
    return np.flatnonzero(mask)


def _why_empty(request: Request, num_seen: int) -> str:
    if request.allowed is not None and not len(request.allowed):
        return "no item passes the filters"
    if num_seen and not len(request.excluded):
        return "all items are seen" if request.allowed is None else "all items that pass the filters are seen"
    return "all items are seen or excluded"
