"""Choice of the programs of a model: scores, and for two towers also the vectors of each side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, ValuesView
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from recsys_cli.batch import Batch, Feature
from recsys_cli.errors import ConfigError
from recsys_cli.models.model import Model, TrainingContext
from recsys_cli.models.ranking.model import RankingModel
from recsys_cli.models.two_tower.model import Model as TwoTower
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
        hint="export a bundle: recsys export RUN --format bundle",
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
    from recsys_cli.serving.export.samples import encoded_sample

    recorded = _Recorded(encoded_sample(served, 1).features)
    with torch.inference_mode():
        score(Batch(recorded, {}))
    return frozenset(recorded.read)
