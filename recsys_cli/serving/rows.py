"""Scores of raw rows: encoded in NumPy by the fitted plan, joined with the dimension tables, scored by the model."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from recsys_cli.batch import Batch, Feature, Ragged
from recsys_cli.errors import ConfigError, DataError
from recsys_cli.features.columns import HISTORY_USER, row_column
from recsys_cli.features.schema import FIRST, Role
from recsys_cli.serving.encoder import RowEncoder
from recsys_cli.serving.histories import History
from recsys_cli.serving.query import NO_RECENT, Recent
from recsys_cli.serving.requests import Request
from recsys_cli.serving.scoring import MOST_USERS, CatalogScorer
from recsys_cli.serving.served import ServedModel


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
    def inputs(self) -> tuple[str, ...]:
        """Raw columns that the features need."""
        return tuple(self._encoder.inputs)

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
