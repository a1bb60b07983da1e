"""Recommendations and scores on request, from a run or a bundle: histories, filters, fallback, diversity, reasons, raw rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor

from recsys_cli.batch import Batch, Feature, Ragged
from recsys_cli.errors import ConfigError, DataError, RecsysError
from recsys_cli.evaluation.ranking import BLOCK_SCORES
from recsys_cli.features.columns import HISTORY_USER, row_column
from recsys_cli.features.schema import FIRST, Role
from recsys_cli.interactions import Interactions
from recsys_cli.models.top_lists import pool_size, top_places
from recsys_cli.serving.catalog import Catalog
from recsys_cli.serving.encoder import RowEncoder
from recsys_cli.serving.histories import History
from recsys_cli.serving.query import NO_RECENT, Answer, Query, Recent, RecommendedItem
from recsys_cli.serving.requests import Request, Resolver
from recsys_cli.serving.scoring import MOST_USERS, CatalogScorer
from recsys_cli.serving.served import ServedModel
from recsys_cli.workspace import TrainedRun, Workspace


class RowScorer:
    """Scores raw rows of a served model.

    Args:
        served: The model.
        scorer: Its scores of the catalog; it gives a model with fold-in the users of the rows.
    """

    def __init__(self, served: ServedModel, scorer: CatalogScorer) -> None:
        self._served, self._scorer = served, scorer
        self._encoders: dict[frozenset[str], RowEncoder] = {}

    def warm_up(self) -> None:
        """Compile the encoder of `score`.

        Raises:
            ConfigError: A feature depends on an op without an implementation for single rows.
        """
        self._encoder  # noqa: B018 - cached

    @cached_property
    def inputs(self) -> Mapping[str, pa.DataType]:
        """Types of the raw columns that the features need."""
        return self._encoder.inputs

    @cached_property
    def optional_inputs(self) -> tuple[str, ...]:
        """Raw columns that `score` reads if they are given: the time of a row, for its history; without it, now."""
        return () if self._served.model.timestamp is None else tuple(self._times.inputs)

    @cached_property
    def user_input(self) -> str:
        """Raw column of the user ids."""
        return next(iter(self._made([self._served.user.name]).inputs))

    def score(self, rows: Mapping[str, Sequence[Any]], recent: Recent = NO_RECENT) -> npt.NDArray[np.float32]:
        """Return the scores of raw rows; see `Recommender.score`."""
        lengths = {name: len(values) for name, values in rows.items()}
        if len(set(lengths.values())) != 1:
            raise DataError(f"the columns have different lengths: {lengths}" if lengths else "there are no columns")
        num_rows, size = next(iter(lengths.values())), min(self._served.source.batch_size, MOST_USERS)
        scores = np.empty(num_rows, np.float32)
        for start in range(0, num_rows, size):
            part = {name: values[start : start + size] for name, values in rows.items()}
            features = self.features(part)
            scores[start : start + size] = self._scored(features | self._of_users(features, part, recent)).numpy()
        if len(wrong := np.flatnonzero(~np.isfinite(scores))):
            raise DataError(
                f"row {wrong[0] + 1}: the model has no finite score",
                hint="give known ids, and numbers instead of null; if no row has a score, train again with a lower "
                "train.learning_rate",
            )
        return scores

    def of_candidates(self, request: Request, candidates: npt.NDArray[np.int64]) -> Tensor:
        """Return scores of candidates for the user of a request, with its raw features and its history; shape (1, I).

        Raises:
            ConfigError: A feature is unknown, or one that the model needs is missing.
        """
        served = self._served
        user, item = served.user.name, served.item.name
        given = self._given(request.query.features)
        if request.query.brings_history:
            given |= self._of_histories([request.history], [0])
        size, scores = served.source.batch_size, []
        for start in range(0, len(candidates), size):
            items = torch.from_numpy(candidates[start : start + size].astype(np.int32))
            users = torch.full_like(items, request.user_idx)
            repeated = {name: _repeated(feature, len(items)) for name, feature in given.items()}
            features = served.tables.join({user: users, item: items}) | repeated
            if missing := [column.name for column in served.schema.features if column.name not in features]:
                raise ConfigError(
                    f"{served.source.name} needs {', '.join(missing)}", hint="give the raw columns in features"
                )
            scores.append(self._scored(features))
        return torch.cat(scores).view(1, -1)

    def features(self, rows: Mapping[str, Sequence[Any]]) -> dict[str, Feature]:
        """Return the model inputs of raw rows, with the features of the dimension tables."""
        features = self._encoder.encode(rows)
        keys = {name: features.pop(row_column(name), None) for name in self._served.schema.names}
        table_rows = {name: rows for name, rows in keys.items() if isinstance(rows, Tensor)}
        ids = {name: feature for name, feature in features.items() if isinstance(feature, Tensor)}
        joined = self._served.tables.join(ids | table_rows)
        own = {name: feature for name, feature in features.items() if name not in table_rows}
        return joined | own | self._times_of(rows)

    def _times_of(self, rows: Mapping[str, Sequence[Any]]) -> dict[str, Feature]:
        """Return the times of rows by column, the latest for null; empty for rows without times."""
        name = self._served.model.timestamp
        if name is None or any(raw not in rows for raw in self._times.inputs):
            return {}
        times = self._times.arrays(rows)[name]
        assert isinstance(times, np.ndarray)
        latest = np.inf if times.dtype.kind == "f" else np.iinfo(times.dtype).max
        missing = np.array([value is None for value in rows[next(iter(self._times.inputs))]])
        return {name: torch.from_numpy(np.where(missing | np.isnan(times.astype(float)), latest, times))}

    def _of_histories(self, histories: Sequence[History], rows: Sequence[int]) -> dict[str, Feature]:
        """Give the model the histories of a call, and return the feature that names one for each row; none without histories."""
        served, name = self._served, HISTORY_USER
        if served.model.folds_in:
            self._scorer.fold(histories)
            name = served.user.name
        elif served.model.timestamp is not None:
            served.model.set_earlier_rows(served.cold.hidden(served.histories.together(histories)))
        else:
            return {}
        return {name: FIRST + torch.tensor(rows, dtype=torch.int32)}

    def _of_users(
        self, features: Mapping[str, Feature], rows: Mapping[str, Sequence[Any]], recent: Recent
    ) -> dict[str, Feature]:
        """Return the feature of the histories of the rows' users; none where the model knows all of them."""
        served = self._served
        if not (served.model.folds_in or recent):
            return {}
        encoded, distinct = features[served.user.name], dict[tuple[int, Any], int]()
        assert isinstance(encoded, Tensor)
        raw = rows[self.user_input] if recent else repeat(None)
        keys = ((user, one if one in recent else None) for user, one in zip(encoded.tolist(), raw, strict=False))
        numbers = [distinct.setdefault(key, len(distinct)) for key in keys]
        return self._of_histories([served.history(user, recent.get(one, ())) for user, one in distinct], numbers)

    def _given(self, features: Mapping[str, Any]) -> dict[str, Feature]:
        """Return the encoded columns that follow from some raw columns, for one row.

        Raises:
            ConfigError: A raw column is no input of any column.
        """
        key = frozenset(features)
        if key not in self._encoders:
            schema = self._served.schema
            own = [column.name for column in schema.features if column.table is None and column.role is Role.FEATURE]
            inputs = {name: set(self._made([name]).inputs) for name in own}
            names = [name for name in own if inputs[name] <= key]
            if unknown := sorted(key.difference(*(inputs[name] for name in names))):
                raise ConfigError(
                    f"unknown feature {', '.join(unknown)}",
                    hint=f"the raw columns of features are {', '.join(sorted(set().union(*inputs.values()))) or 'none'}",
                )
            self._encoders[key] = self._made(names)
        return self._encoders[key].encode({name: [value] for name, value in features.items()})

    def encoded(self, rows: Mapping[str, Sequence[Any]]) -> dict[str, Feature]:
        """Return the encoded ids and features that follow from the raw columns of rows."""
        given = frozenset(name for name in rows if name in self.inputs)
        if (key := given | {""}) not in self._encoders:
            own = [column.name for column in self._served.schema.features if column.table is None]
            self._encoders[key] = self._made([name for name in own if self._made([name]).inputs.keys() <= given])
        return self._encoders[key].encode(rows)

    def _scored(self, features: Mapping[str, Feature]) -> Tensor:
        with torch.inference_mode():
            return self._served.model.score(Batch(features, {})).float()

    @cached_property
    def _encoder(self) -> RowEncoder:
        return self._made()

    @cached_property
    def _times(self) -> RowEncoder:
        return self._made([str(self._served.model.timestamp)])

    def _made(self, only: Collection[str] | None = None) -> RowEncoder:
        return RowEncoder(self._served.fitted, self._served.schema, only=only, indexes=self._served.indexes)


def _repeated(feature: Feature, times: int) -> Feature:
    """Return the feature of one row for several rows."""
    if isinstance(feature, Ragged):
        weights = None if feature.weights is None else feature.weights.repeat(times)
        length = feature.values.numel()
        return Ragged(feature.values.repeat(times), torch.arange(times + 1) * length, weights)
    return feature.expand(times)


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
        between = self.scorer.between(np.array([place]))
        if between is None:
            return Answer((), "none", note=f"{self.served.source.name} has no item vectors, and items have no features")
        best = np.argsort(-between[0], kind="stable")
        best = best[best != place][: max(0, k)]
        items = tuple(RecommendedItem(self.catalog.item(int(one)), float(between[0, one])) for one in best)
        return Answer(items, "model" if items else "none")

    def users(self, k: int) -> list[Any]:
        """Return raw ids of users of train, at most k."""
        ids: list[Any] = self.served.users.values[: min(max(0, k), self.served.users.num_train)].to_pylist()
        return ids

    def places(self, query: Query) -> tuple[npt.NDArray[np.int64] | None, list[str]]:
        """Return the places that the filters of a query leave, ascending, None for the catalog; and notes on the filters.

        Raises:
            ConfigError: The query is invalid.
        """
        notes: list[str] = []
        allowed, excluded = self._resolver.filtered(query, notes)
        if allowed is None and not len(excluded):
            return None, notes
        return np.setdiff1d(np.arange(len(self.catalog)) if allowed is None else allowed, excluded), notes

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
            for row, request in enumerate(requests if requests[0].scores != "popularity" else ()):
                self.scorer.fill_slots(request.query.k, subset, scores[row : row + 1])
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
            chosen = self.scorer.diverse(places, scores, k=query.k, diversity=query.diversity)
            if chosen is None:
                request.notes.append("no diversity: the items have neither vectors nor features")
                chosen = np.arange(min(query.k, len(places)))
            places, scores = places[chosen], scores[chosen]
        explained = query.explain and request.source != "popularity"
        reasons = self.scorer.reasons(request.history, places) if explained else [()] * len(places)
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
