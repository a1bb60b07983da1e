"""Scores of raw rows: encoded in NumPy by the fitted plan, joined with the dimension tables, scored by the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from recsys_cli.batch import Batch, Feature, Ragged
from recsys_cli.errors import ConfigError, DataError, RecsysError, TrainingError
from recsys_cli.evaluation.scorers import NOT_A_NUMBER
from recsys_cli.features.columns import row_column
from recsys_cli.features.fitted_plan import FittedPlan
from recsys_cli.features.program import INTERACTIONS
from recsys_cli.serving.query import Query
from recsys_cli.serving.served import ServedModel
from recsys_cli.serving.signature import needed_inputs


class RowScorer:
    """Scores raw rows of a served model.

    Args:
        served: The model.
    """

    def __init__(self, served: ServedModel) -> None:
        self._served = served
        self._encoders: dict[frozenset[str], Any] = {}

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Raw columns that the features need."""
        return tuple(needed_inputs(self._fitted))

    def score(self, rows: Mapping[str, Sequence[Any]]) -> npt.NDArray[np.float32]:
        """Return the scores of raw rows; see `Recommender.score`."""
        lengths = {name: len(values) for name, values in rows.items()}
        if len(set(lengths.values())) != 1:
            raise DataError(f"the columns have different lengths: {lengths}" if lengths else "there are no columns")
        num_rows, size = next(iter(lengths.values())), self._served.source.batch_size
        parts = [
            self._part({name: values[start : start + size] for name, values in rows.items()})
            for start in range(0, num_rows, size)
        ]
        scores = np.concatenate([np.empty(0, np.float32), *parts])
        if not np.isfinite(scores).all():
            raise TrainingError("a score of the model is not finite", hint=NOT_A_NUMBER)
        return scores

    def of_candidates(self, query: Query, user_idx: int, candidates: npt.NDArray[np.int64]) -> Tensor:
        """Return scores of candidates for one user with raw features, shape (1, I).

        Raises:
            ConfigError: A feature is unknown, or one that the model needs is missing.
        """
        served = self._served
        user, item = served.user.name, served.item.name
        known = self._fitted.inputs[INTERACTIONS].names
        if unknown := [name for name in query.features if name not in known]:
            raise ConfigError(f"unknown feature {', '.join(unknown)}", hint=f"the raw columns are {', '.join(known)}")
        given = self._encode({name: [value] for name, value in query.features.items()})
        size, scores = served.source.batch_size, []
        for start in range(0, len(candidates), size):
            items = torch.from_numpy(candidates[start : start + size].astype(np.int32))
            users = torch.full_like(items, user_idx)
            repeated = {
                name: _repeated(feature, len(items)) for name, feature in given.items() if name not in {user, item}
            }
            features = served.tables.join({user: users, item: items}) | repeated
            if missing := [column.name for column in served.schema.features if column.name not in features]:
                raise ConfigError(
                    f"{served.source.name} needs {', '.join(missing)}", hint="give the raw columns in features"
                )
            scores.append(self._scored(features))
        return torch.cat(scores).view(1, -1)

    def _part(self, rows: Mapping[str, Sequence[Any]]) -> npt.NDArray[np.float32]:
        features = self._encode(rows)
        keys = {}
        for name in (column.name for column in self._served.schema.features):
            row = features.pop(row_column(name), None)
            if isinstance(row, Tensor):
                own = features[name]
                assert isinstance(own, Tensor), f"{name} is a list"
                keys[name] = torch.where(row >= int(self._served.schema[name].cardinality or 0), row, own)
        ids = {key: f for key, f in features.items() if isinstance(f, Tensor) and not f.is_floating_point()}
        return self._scored(
            self._served.tables.join(ids | keys) | {n: f for n, f in features.items() if n not in keys}
        ).numpy()

    def _scored(self, features: Mapping[str, Feature]) -> Tensor:
        with torch.inference_mode():
            return self._served.model.score(Batch(features, {})).float()

    @cached_property
    def _fitted(self) -> FittedPlan:
        return FittedPlan.read(self._served.data.folder)

    def _encode(self, rows: Mapping[str, Sequence[Any]]) -> dict[str, Feature]:
        """Return the encoded interaction columns of raw rows."""
        key = frozenset(rows)
        if key not in self._encoders:
            self._encoders[key] = _row_encoder(self._fitted, self._served, key)
        return {name: _as_feature(feature) for name, feature in self._encoders[key].encode(rows).items()}


def _row_encoder(fitted: FittedPlan, served: ServedModel, have: frozenset[str]) -> Any:
    """Return the encoder of rows with some raw columns."""
    try:
        from recsys_cli.serving.encoder import RowEncoder  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise RecsysError(
            "raw rows cannot be encoded: this version has no row encoder",
            hint="recsys etl --apply RUN rows.parquet prepares them",
        ) from error
    del have
    return RowEncoder(fitted, served.schema)


def _as_feature(feature: Any) -> Feature:
    return torch.from_numpy(feature) if isinstance(feature, np.ndarray) else feature


def _repeated(feature: Feature, times: int) -> Feature:
    """Return the feature of one row for several rows."""
    if isinstance(feature, Ragged):
        weights = None if feature.weights is None else feature.weights.repeat(times)
        length = feature.values.numel()
        return Ragged(feature.values.repeat(times), torch.arange(times + 1) * length, weights)
    return feature.expand(times)
