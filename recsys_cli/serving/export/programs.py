"""Programs of a model and their check: scores, and for two towers also the vectors of each side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, ValuesView
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from recsys_cli.batch import Batch, Feature, Ragged
from recsys_cli.errors import ConfigError, DataError
from recsys_cli.features.columns import row_column
from recsys_cli.features.schema import NULL, Column, Kind
from recsys_cli.models.model import Model, TrainingContext
from recsys_cli.models.ranking.model import RankingModel
from recsys_cli.models.retrieval.two_tower import TwoTower
from recsys_cli.serving.export.program import Program, Score, VectorProgram
from recsys_cli.serving.served import ServedModel


@dataclass(frozen=True)
class Export:
    """A program with the function that it has to equal.

    Attributes:
        name: File name without suffix.
        output: Name of the output.
        program: The program.
        eager: The function of a batch with Ragged lists.
    """

    name: str
    output: str
    program: Program | VectorProgram
    eager: Score


EXPORTABLE = (
    *("mf", "lightgcn", "two-tower", "fm", "wide-deep", "deepfm", "dcn-v2", "dlrm", "mlp", "logistic"),
    *("mmoe", "ple", "neumf"),
)
"""Models with programs; most predict labels."""


def programs_of(served: ServedModel) -> list[Export]:
    """Return the programs of a model, the scores first.

    Raises:
        ConfigError: The model has no exportable program.
    """
    model = served.model
    _set_context(served)
    if isinstance(model, TwoTower):

        def users(batch: Batch) -> Tensor:
            return model.users(batch.features) / model.config.temperature

        def items(batch: Batch) -> Tensor:
            vectors: Tensor = model.items(batch.features)
            return vectors

        sides: tuple[tuple[str, Score, nn.Module], ...] = (("user", users, model.users), ("item", items, model.items))
        return [
            _export(served, model.score, model, "model", "score"),
            *(_export(served, side, module, f"{name}_tower", "vector") for name, side, module in sides),
        ]
    if isinstance(model, RankingModel) and model.collaborative is None and model.history is None:
        return [_export(served, model.score, model, "model", "score")]
    if model.scoring == "dot_product" and not model.folds_in:
        return [_by_vectors(served)]
    raise ConfigError(
        f"{served.source.name} {_why_not(model)}, so it cannot be exported as ONNX or torch.export",
        hint=f"recsys export {served.source.name} --format bundle, or triton, takes every model; onnx and torch take "
        f"{', '.join(EXPORTABLE)}, without model.collaborative and model.history",
    )


def _why_not(model: Model) -> str:
    if isinstance(model, RankingModel) and model.history is not None:
        return "reads the histories of users (model.history)"
    if isinstance(model, RankingModel):
        return "computes collaborative features (model.collaborative) from all interactions"
    return "scores from the user's history" if model.folds_in else "is no neural network over the columns of a row"


def _set_context(served: ServedModel) -> None:
    """Set the context of a model that scores trained users only."""
    if not served.model.folds_in:
        cold, rows = served.cold, served.histories.interactions
        served.model.set_context(TrainingContext(lambda: cold.hidden(rows()), served.tables.join))


def _export(served: ServedModel, score: Score, module: nn.Module, name: str, output: str) -> Export:
    program = Program(score, module, served.schema, served.tables, _read_by(score, served))
    return Export(name, output, program.eval(), score)


def _by_vectors(served: ServedModel) -> Export:
    with torch.inference_mode():
        users = served.model.user_vectors(torch.arange(int(served.user.cardinality or 0))).clone()
        items = served.model.item_vectors(torch.arange(int(served.item.cardinality or 0))).clone()
    program = VectorProgram(users, items, served.schema, (served.user.name, served.item.name))
    return Export("model", "score", program.eval(), served.model.score)


class _Recorded(Mapping[str, Feature]):
    """Features that record the names read."""

    def __init__(self, features: Mapping[str, Feature]) -> None:
        self._features, self.read = features, set[str]()

    def __getitem__(self, name: str) -> Feature:
        self.read.add(name)
        return self._features[name]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._features)

    def __len__(self) -> int:
        return len(self._features)

    def values(self) -> ValuesView[Feature]:
        """Return all features, without a record: batches look at any of them for their size and device."""
        return self._features.values()


def _read_by(score: Score, served: ServedModel) -> frozenset[str]:
    """Return the features that a function reads, by a trial with one row."""
    recorded = _Recorded(encoded_sample(served, 1).features)
    with torch.inference_mode():
        score(Batch(recorded, {}))
    return frozenset(recorded.read)


_LONGEST = 5
"""Maximum length of a random list."""


def encoded_sample(served: ServedModel, num_rows: int, *, seed: int = 0) -> Batch:
    """Return rows with random ids, null and unseen among them, joined features, and the table rows of keys."""
    rng = np.random.default_rng(seed)
    keys = {column.name: _table_rows(served, column, num_rows, rng) for column in _keys(served)}
    features: dict[str, Feature] = served.tables.join(keys)
    for column in served.schema.features:
        if column.name not in features:
            features[column.name] = _random_feature(column, num_rows, rng)
    return Batch(features | {row_column(key): rows for key, rows in keys.items()}, {})


def _keys(served: ServedModel) -> list[Column]:
    return [column for column in served.schema.categorical if served.tables.num_rows(column.name)]


def _table_rows(served: ServedModel, column: Column, num_rows: int, rng: np.random.Generator) -> torch.Tensor:
    return torch.from_numpy(rng.integers(NULL, served.tables.num_rows(column.name), num_rows))


def _random_feature(column: Column, num_rows: int, rng: np.random.Generator) -> Feature:
    if not column.ragged and column.kind is Kind.NUMERIC:
        return torch.from_numpy(rng.standard_normal(num_rows, dtype=np.float32))
    if not column.ragged:
        return torch.from_numpy(rng.integers(NULL, int(column.cardinality or 0), num_rows))
    offsets = torch.from_numpy(np.concatenate(([0], np.cumsum(rng.integers(0, _LONGEST, num_rows)))))
    size = int(offsets[-1])
    if column.kind is Kind.NUMERIC:
        return Ragged(torch.from_numpy(rng.standard_normal(size, dtype=np.float32)), offsets)
    values = torch.from_numpy(rng.integers(NULL, int(column.cardinality or 0), size))
    weights = None if column.weights is None else torch.from_numpy(rng.random(size, dtype=np.float32))
    return Ragged(values, offsets, weights)


BATCH_SIZES = (1, 2, 257)
TOLERANCE = 1e-5
"""Maximum difference of scores, relative to scores beyond 1."""


def largest_difference(eager: torch.Tensor, exported: npt.NDArray[np.float32], *, what: str) -> float:
    """Return the largest difference of outputs, relative to outputs beyond 1.

    Raises:
        DataError: It exceeds the tolerance; the message names the first such row.
    """
    expected = eager.float().numpy()
    if expected.shape != exported.shape:
        raise DataError(f"{what}: the shape is {exported.shape} instead of {expected.shape}")
    differences = np.abs(expected - exported) / np.maximum(1, np.abs(expected))
    wrong = ~(differences <= TOLERANCE) & ~(np.isnan(expected) & np.isnan(exported))
    if wrong.any():
        place = tuple(int(index) for index in np.argwhere(wrong)[0])
        raise DataError(
            f"{what}: row {place[0] + 1} of a batch of {len(expected)} is {exported[place]}, and the model's is {expected[place]}",
            hint="use the bundle: recsys export RUN --format bundle",
        )
    return float(np.nanmax(differences, initial=0.0))


def eager_outputs(eager: Score, batch: Batch) -> torch.Tensor:
    """Return the outputs of the model."""
    with torch.inference_mode():
        return eager(batch)
