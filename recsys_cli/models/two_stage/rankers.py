"""Rankers of candidates: LightGBM, or any ranking model of rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from recsys_cli.batch import Batch
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Column, Kind, Role, Schema
from recsys_cli.models import build, kind_of
from recsys_cli.models.model import Model, TrainingContext
from recsys_cli.models.two_stage.config import Part, TreeRanker

_BATCH = 65_536
"""Rows scored at once; affects only memory."""


@dataclass(frozen=True)
class LabeledCandidates:
    """Rows of a ranker: N candidates with features, ordered by user.

    Attributes:
        items: Encoded items, shape (N,).
        features: Shape (N, F), float32.
        labels: 1 for a target, float32; shape (N,).
        group: Number of the list (a user in a hold-out) of each row, ascending; shape (N,).
    """

    items: Tensor
    features: Tensor
    labels: Tensor
    group: Tensor


class Ranker(nn.Module):
    """A model of candidates' features."""

    @abstractmethod
    def fit(self, rows: LabeledCandidates, context: TrainingContext) -> None:
        """Fit to rows, on their device."""

    @abstractmethod
    def score(self, items: Tensor, features: Tensor) -> Tensor:
        """Return a score per candidate, (N,) and (N, F) to (N,), float32."""


class Trees(Ranker):
    """Gradient-boosted trees by LightGBM, in its text format in a byte buffer.

    Without trees, because there were no targets, the score is the first feature, the rank fusion.
    """

    trees: Tensor

    def __init__(self, options: TreeRanker, seed: int) -> None:
        super().__init__()
        from recsys_cli.models.lightgbm.model import lightgbm  # an optional package

        self._library = lightgbm
        self._options, self._seed = options, seed
        self._booster: Any = None
        self.register_buffer("trees", torch.zeros(0, dtype=torch.uint8))

    def fit(self, rows: LabeledCandidates, context: TrainingContext) -> None:
        """Grow the trees on the CPU."""
        del context
        groups = torch.unique_consecutive(rows.group, return_counts=True)[1]
        listwise = self._options.objective == "lambdarank"
        data = self._library.Dataset(
            rows.features.cpu().numpy(), rows.labels.cpu().numpy(), group=groups.cpu().numpy() if listwise else None
        )
        self._booster = self._library.train(self._lightgbm_parameters(), data, num_boost_round=self._options.num_trees)
        text = np.frombuffer(self._booster.model_to_string().encode(), np.uint8).copy()
        self.trees = torch.from_numpy(text).to(rows.features.device)

    def score(self, items: Tensor, features: Tensor) -> Tensor:
        """Return the sums of the trees."""
        del items
        if not len(self.trees) or not len(features):
            return features[:, 0].clone()
        if self._booster is None:
            self._booster = self._library.Booster(model_str=self.trees.cpu().numpy().tobytes().decode())
        scores = self._booster.predict(features.cpu().numpy(), raw_score=True, num_threads=torch.get_num_threads())
        return torch.from_numpy(scores).float().to(features.device)

    def _lightgbm_parameters(self) -> dict[str, Any]:
        options = self._options.model_dump(exclude={"name", "num_trees"})
        return {
            **options, "bagging_freq": 1, "seed": self._seed, "deterministic": True, "force_row_wise": True,
            "lambdarank_truncation_level": 20, "num_threads": torch.get_num_threads(), "verbosity": -1,
        }  # fmt: skip

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Resize the buffer to the trees of the checkpoint."""
        self._booster = None
        if (trees := state_dict.get(f"{prefix}trees")) is not None:
            self.trees = self.trees.new_empty(len(trees))
        super()._load_from_state_dict(state_dict, prefix, *rest)


class RowRanker(Ranker):
    """A registered ranking model, such as dcn-v2, on the item id and the standardized features of a candidate.

    Args:
        part: The model, its options and its training.
        schema: The prepared columns.
        names: Names of the features.

    Raises:
        ConfigError: The model is no gradient-trained ranking model.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, part: Part, schema: Schema, names: list[str]) -> None:
        super().__init__()
        self._training = part.training
        item, label = schema.only(Role.ITEM), schema.label
        numbers = [Column(name=name, role=Role.FEATURE, kind=Kind.NUMERIC, dtype="float32") for name in names]
        target = label.model_copy(update={"task": "binary"})
        own_item = item.model_copy(update={"table": None})
        self._schema = Schema(columns=(own_item, *numbers, target))
        self._names, self._item, self._label = names, item.name, label.name
        kind = kind_of(part.name)
        if kind.rows != "interactions" or kind.scoring != "pairs":
            raise ConfigError(
                f"model.ranker.name is {part.name}, which is no ranking model trained step by step",
                hint="choose lightgbm, or one of dcn-v2, deepfm, fm, mlp",
            )
        self.model: Model = build(part.name, part.options, self._schema, sparse=self._training.sparse_embeddings)
        self.register_buffer("mean", torch.zeros(len(names)))
        self.register_buffer("deviation", torch.ones(len(names)))

    def fit(self, rows: LabeledCandidates, context: TrainingContext) -> None:
        """Train on shuffled rows."""
        self.mean.copy_(rows.features.mean(0))
        self.deviation.copy_(rows.features.std(0, correction=0))
        features = self._batch(rows.items, rows.features).features
        batch = Batch(features, {self._label: rows.labels})
        context.train(self.model, self._training, TrainingContext(_none, dict, lambda: (batch,)), self._schema)

    def score(self, items: Tensor, features: Tensor) -> Tensor:
        """Return the logits."""
        self.model.eval()
        parts = zip(items.split(_BATCH), features.split(_BATCH), strict=True)
        return torch.cat([features[:0, 0], *(self.model.score(self._batch(*part)) for part in parts)])

    def _batch(self, items: Tensor, features: Tensor) -> Batch:
        scaled = ((features - self.mean) / self.deviation.clamp(min=1e-6)).clamp(-10, 10)
        columns: Iterator[tuple[str, Tensor]] = zip(self._names, scaled.unbind(1), strict=True)
        return Batch({self._item: items.to(torch.int32), **dict(columns)}, {})


def _none() -> Any:
    raise AssertionError("a ranker of candidates reads no interactions")


def ranker_of(options: TreeRanker | Part | None, schema: Schema, names: Callable[[], list[str]]) -> Ranker | None:
    """Return the ranker of a config; None for rank fusion."""
    if options is None:
        return None
    if isinstance(options, TreeRanker):
        return Trees(options, seed=int(torch.randint(2**31 - 1, ())))
    return RowRanker(options, schema, names())
