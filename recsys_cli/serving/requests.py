"""Queries resolved to encoded ids, places of the catalog, and the origin of their scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import FIRST, UNSEEN
from recsys_cli.serving.catalog import Catalog, ItemFilter
from recsys_cli.serving.histories import History
from recsys_cli.serving.query import Query, Source
from recsys_cli.serving.served import ServedModel

Scores = Literal["user", "history", "rows", "popularity"]
"""Origin of the scores: the id of a user, a history, rows with features or a history of the request, or counts."""


Places = npt.NDArray[np.int64]
_GIVE = "give item ids as the history"
"""What helps a user without a history in train."""

_SHOWN = 5
"""Number of unknown ids in a note."""


@dataclass
class Request:
    """A query in encoded ids.

    Attributes:
        query: The query.
        scores: Origin of the scores.
        source: The same for the answer.
        user_idx: Encoded user, or table row of a cold-start user.
        history: The history: of the request, or else the stored one.
        seen: Places of the seen items to leave out.
        excluded: Places of other items to leave out.
        allowed: Places of the only items to rank, ascending; None for the catalog.
        notes: Sentences for the answer, without a full stop.
    """

    query: Query
    scores: Scores
    source: Source
    user_idx: int
    history: History
    seen: npt.NDArray[np.int64]
    excluded: npt.NDArray[np.int64]
    allowed: npt.NDArray[np.int64] | None = None
    notes: list[str] = field(default_factory=list)


class Resolver:
    """Resolves queries, unless there is a reason against ranking; the ids of all queries are looked up at once."""

    def __init__(self, served: ServedModel, catalog: Catalog, *, why_not: str | None) -> None:
        self._served, self._catalog, self._why_not = served, catalog, why_not
        self._filter = ItemFilter(served, catalog.candidates)

    def resolve(self, queries: Sequence[Query]) -> list[Request]:
        """Return the requests, in order.

        Raises:
            ConfigError: A query is invalid.
        """
        for query in queries:
            _check(query)
        users = self._served.users.encode([None if query.user is None else query.user for query in queries])
        lists = [
            part
            for query in queries
            for part in (query.history, query.candidates, query.exclude, [one.item for one in query.recent])
        ]
        encoded = self._encoded(lists)
        return [
            self._request(query, int(users[row]), *encoded[4 * row : 4 * row + 4]) for row, query in enumerate(queries)
        ]

    def _encoded(self, lists: Sequence[Sequence[Any] | None]) -> list[npt.NDArray[np.int64] | None]:
        """Return the encoded items of all lists; one lookup."""
        ends = list(accumulate(len(part or ()) for part in lists))
        ids = self._served.items.encode([value for part in lists for value in part or ()])
        return [None if part is None else ids[end - len(part) : end] for part, end in zip(lists, ends, strict=True)]

    def _request(
        self,
        query: Query,
        user: int,
        history: npt.NDArray[np.int64] | None,
        candidates: npt.NDArray[np.int64] | None,
        exclude: npt.NDArray[np.int64] | None,
        recent: npt.NDArray[np.int64] | None,
    ) -> Request:
        notes: list[str] = []
        if history is None:
            own = self._served.history(user, query.recent, recent)
        else:
            known = _known(history, query.history, "the history", notes)
            own = self._served.histories.of_items(known)
            if self._served.takes_histories and (num_cold := int(self._served.cold.among(known).sum())):
                name = self._served.source.name
                notes.append(
                    f"{num_cold:,} of {len(history):,} items of the history are not in train: {name} skips them"
                )
        if query.features and not self._served.model.scores_users_by_features:
            notes.append(f"{self._served.source.name} reads no features: {', '.join(query.features)} had no effect")
        scores, source = self._origin(query, user, own, notes)
        if source != "popularity":
            notes += seen_last(self._served, query)
        leaves_out = self._served.source.excludes_seen(query.exclude_seen)
        seen = self._catalog.places(own.items) if leaves_out else np.empty(0, np.int64)
        allowed, excluded = self._filtered(query, candidates, exclude, notes)
        user_idx = user if user >= 0 else UNSEEN
        return Request(query, scores, source, user_idx, own, np.unique(seen[seen >= 0]), excluded, allowed, notes)

    def filtered(self, query: Query, notes: list[str]) -> tuple[Places | None, Places]:
        """Return the allowed and the excluded places of a query for any user, and add notes; see `Request`.

        Raises:
            ConfigError: The query is invalid.
        """
        _check(query)
        candidates, exclude = self._encoded([query.candidates, query.exclude])
        return self._filtered(query, candidates, exclude, notes)

    def _filtered(
        self, query: Query, candidates: Places | None, exclude: Places | None, notes: list[str]
    ) -> tuple[Places | None, Places]:
        allowed, excluded = None, np.empty(0, np.int64)
        if exclude is not None:
            places = self._catalog.places(_known(exclude, query.exclude, "the excluded items", notes))
            excluded = np.unique(places[places >= 0])
        if candidates is not None:
            places = self._catalog.places(_known(candidates, query.candidates, "the candidates", notes))
            allowed = np.unique(places[places >= 0])
            if missing := int((places < 0).sum()):
                notes.append(f"{missing:,} of the candidates are not in train, and the model cannot score them")
        if query.where is not None:
            mask = self._filter.mask(query.where)
            allowed = np.flatnonzero(mask) if allowed is None else allowed[mask[allowed]]
        return allowed, excluded

    def _origin(self, query: Query, user: int, history: History, notes: list[str]) -> tuple[Scores, Source]:
        """Choose the origin of the scores: user or history, then features, then the model without a history, then popularity."""
        served, model = self._served, self._served.model
        if query.features and model.scores_users_by_features:
            return "rows", "model"
        if self._why_not is not None:
            notes.append(f"{served.source.name} cannot rank: {self._why_not}")
            return "popularity", "popularity"
        trained = FIRST <= user < served.users.cardinality
        has_history = not served.cold.among(history.items).all()
        if served.takes_histories and query.brings_history and has_history:
            return "history" if model.folds_in else "rows", "fold-in"
        if model.folds_in:
            if has_history:
                return "history", "model" if trained else "fold-in"
            notes.append(_lacking(query, "history of items in train", _GIVE))
            if model.ranks_without_history:  # popularity by its own options, such as a half-life
                return "history", "popularity" if served.source.name == "popularity" else "model"
            return "popularity", "popularity"
        if trained or (user >= served.users.cardinality and model.by_content):
            return "user", "model"
        refusal = f"{served.source.name} cannot fold in a history; train with rows of the user"
        notes.append(_lacking(query, "row in train", _GIVE if served.takes_histories else refusal))
        return "popularity", "popularity"


def seen_last(served: ServedModel, query: Query) -> list[str]:
    """Return a note on a request for seen items to a model that ranks them last."""
    if served.source.excludes_seen(query.exclude_seen) or not served.model.ranks_seen_last:
        return []
    return [f"seen items are no candidates of {served.source.name}: they rank behind all candidates"]


def _check(query: Query) -> None:
    if isinstance(query.k, bool) or not isinstance(query.k, int | np.integer) or query.k < 1:
        raise ConfigError(f"k is {query.k}, but has to be 1 or more")
    if not 0 <= query.diversity <= 1:
        raise ConfigError(f"diversity is {query.diversity}, but has to be from 0 to 1")
    for name in ("history", "candidates", "exclude"):
        value = getattr(query, name)
        if value is not None and (isinstance(value, str | bytes) or not isinstance(value, Sequence)):
            raise ConfigError(
                f"{name} is of type {type(value).__name__}", hint="pass a list of item ids, such as [1, 2]"
            )


def _known(
    encoded: npt.NDArray[np.int64], raw: Sequence[Any] | None, what: str, notes: list[str]
) -> npt.NDArray[np.int64]:
    """Return the known items; a note counts the unknown ones and names the first."""
    unknown = np.flatnonzero(encoded < 0)
    if len(unknown) and raw is not None:
        shown = ", ".join(str(raw[row]) for row in unknown[:_SHOWN]) + (" …" if len(unknown) > _SHOWN else "")
        notes.append(f"{len(unknown):,} of {len(encoded):,} ids of {what} are unknown: {shown}")
    return encoded[encoded >= 0]


def _lacking(query: Query, what: str, step: str) -> str:
    """Return what the user lacks, and what helps; a history of the request has no item in train then."""
    if query.history and step == _GIVE:
        return "no item of the history is in train"
    return f"{'the anonymous user' if query.user is None else f'user {query.user}'} has no {what}: {step}"
