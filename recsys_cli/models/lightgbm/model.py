"""Gradient-boosted trees by LightGBM: the only file that knows it. The trees are kept as its text format, in a buffer of bytes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recsys_cli.batch import Batch
from recsys_cli.errors import MissingExtraError, TrainingError
from recsys_cli.features.hashing import hash_counters, mix
from recsys_cli.features.schema import Schema
from recsys_cli.models.collaborative.features import CollaborativeFeatures
from recsys_cli.models.collaborative.folds import fit_folds, out_of_fold
from recsys_cli.models.collaborative.rows import Categories, Rows
from recsys_cli.models.lightgbm.config import Config
from recsys_cli.models.lightgbm.plain import Plain
from recsys_cli.models.model import ClosedFormModel, Progress, TrainingContext, unheard

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of packages that it looks for
        import lightgbm
except ImportError as _error:
    raise MissingExtraError.for_extra("lightgbm", what="the model lightgbm") from _error


_TREES: dict[str, tuple[str, ...]] = {
    "trees": (),
    "trees_cold_user": ("users",),
    "trees_cold_item": ("items",),
    "trees_cold_both": ("users", "items"),
}
"""The buffers of trees, and which ids of a row are unknown to train where they score it."""


class Model(ClosedFormModel):
    """Trees that predict the main label of a row from its features and from what other rows tell of its user and item.

    What a row of train is told is learnt without the fold that the row is in, so its own label is no part of it; a new row is
    told what all of train says. Rows with a user or an item unknown to train have trees of their own, grown on rows of train
    without those ids: other trees lean on columns that such a row lacks. Folds and draws follow from torch's global generator at
    construction. Trees are grown the same by any number of threads; positions may differ in their last digits where LAPACK has
    another number of them.

    Raises:
        ConfigError: There is no label, or not one user and one item.
    """

    probabilistic = True
    by_content = True

    def __init__(self, config: Config, schema: Schema) -> None:
        super().__init__()
        self.config, self.schema = config, schema
        self.label = schema.label.name
        self.categories = Categories(schema, config.max_categories)
        self.collaborative = CollaborativeFeatures(config, schema, self.categories)
        self.plain = Plain(schema, self.categories)
        self.seed = int(torch.randint(2**31 - 1, ()))
        for name in _TREES:
            self.register_buffer(name, torch.zeros(0, dtype=torch.uint8))
        self._boosters: dict[str, lightgbm.Booster] = {}

    def fit(self, context: TrainingContext, *, progress: Progress = unheard) -> None:
        """Learn what is told of rows, fold by fold and of all, and grow the trees; on the CPU, with all of train in memory."""
        rows, plain, weight = self._read(context)
        total = self.config.folds + 1 + len(_TREES)
        fold = self._fold_of(rows)
        parts = self._fit_folds(rows, fold, progress=lambda done: progress(done, total))
        whole = CollaborativeFeatures(self.config, self.schema, self.categories)
        whole.fit(rows, seed=self.seed)
        self.collaborative.load_state_dict(whole.state_dict())
        progress(self.config.folds + 1, total)
        for number, (name, unknown) in enumerate(_TREES.items()):
            told = torch.cat([plain, out_of_fold(parts, rows.without(*unknown), fold)], dim=1)
            self._grow(name, told, rows, _balanced(weight, rows, unknown))
            progress(self.config.folds + 2 + number, total)

    def _grow(self, name: str, told: Tensor, rows: Rows, weight: Tensor | None) -> None:
        label = rows.labels[:, [column.name for column in self.schema.labels].index(self.label)]
        data = lightgbm.Dataset(
            told.numpy(),
            label.numpy(),
            weight=None if weight is None else weight.numpy(),
            categorical_feature=list(range(len(self.plain.single))),
        )
        booster = lightgbm.train(self._how(), data, num_boost_round=self.config.num_trees)
        text = booster.model_to_string().encode()
        self._boosters[name] = booster
        setattr(self, name, torch.from_numpy(np.frombuffer(text, np.uint8).copy()).to(self.device))

    def _read(self, context: TrainingContext) -> tuple[Rows, Tensor, Tensor | None]:
        """Return the rows of train, their own features, and what they count."""
        parts, plain, weights = [], [], []
        for some in context.batches():
            batch = some.to("cpu")
            rows = Rows.of(batch, self.schema, self.categories)
            parts.append(rows)
            plain.append(self.plain.columns(batch, rows.elements))
            weights += [batch.weight] if batch.weight is not None else []
        return Rows.joined(parts), torch.cat(plain), torch.cat(weights) if weights else None

    def out_of_fold(self, rows: Rows) -> Tensor:
        """Return what rows of train are told, each by the folds that it is not in; shape (N, F), float32.

        Args:
            rows: In file order: a row's fold is a hash of its number.
        """
        fold = self._fold_of(rows)
        return out_of_fold(self._fit_folds(rows, fold), rows, fold)

    def _fold_of(self, rows: Rows) -> Tensor:
        hashed = hash_counters(np.arange(len(rows), dtype=np.uint64), mix(self.seed))
        return torch.from_numpy((hashed % np.uint64(self.config.folds)).astype(np.int64))

    def _fit_folds(
        self, rows: Rows, fold: Tensor, *, progress: Callable[[int], None] = lambda _: None
    ) -> list[CollaborativeFeatures]:
        return fit_folds(self.config, self.schema, self.categories, rows, fold, seed=self.seed, progress=progress)

    def _how(self) -> dict[str, Any]:
        options = self.config
        return {
            # Log loss, which takes labels between 0 and 1 too; trees of a squared error are the same in all units.
            "objective": "regression" if self.schema.label.is_regression else "cross_entropy",
            "learning_rate": options.learning_rate,
            "num_leaves": options.num_leaves,
            "min_data_in_leaf": options.min_data_in_leaf,
            "lambda_l2": options.lambda_l2,
            "feature_fraction": options.feature_fraction,
            "bagging_fraction": options.bagging_fraction,
            "bagging_freq": 1,
            "seed": self.seed,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }

    def score(self, batch: Batch) -> Tensor:
        """Return the trees' sum, which is a logit, or the number that the label is; shape (B,).

        Raises:
            TrainingError: It has not been fitted.
        """
        rows = Rows.of(batch, self.schema, self.categories)
        plain = self.plain.columns(batch, rows.elements)
        told = torch.cat([plain, self.collaborative.columns(rows)], dim=1)
        matrix, logits = told.cpu().numpy(), np.zeros(len(rows))
        cold_user = self.collaborative.rows_of_user[rows.users] == 0
        cold_item = self.collaborative.rows_of_item[rows.items] == 0
        for name, unknown in _TREES.items():
            chosen = (cold_user == ("users" in unknown)) & (cold_item == ("items" in unknown))
            if (wanted := chosen.cpu().numpy()).any():
                logits[wanted] = self._grown(name).predict(matrix[wanted], raw_score=True)
        return torch.from_numpy(logits).float().to(self.device)

    def _grown(self, name: str) -> lightgbm.Booster:
        if name not in self._boosters:
            text = self.get_buffer(name)
            if not len(text):
                raise TrainingError("the model lightgbm has no trees yet", hint="recsys train")
            self._boosters[name] = lightgbm.Booster(model_str=text.cpu().numpy().tobytes().decode())
        return self._boosters[name]

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Let the trees be as long as those in the file."""
        self._boosters = {}
        for name in _TREES:
            if (trees := state_dict.get(f"{prefix}{name}")) is not None:
                setattr(self, name, self.get_buffer(name).new_empty(len(trees)))
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _balanced(weight: Tensor | None, rows: Rows, unknown: Sequence[str]) -> Tensor | None:
    """Return the weights of rows without some ids: without items, each item counts the same, as a new one is like a rare one."""
    if "items" not in unknown:
        return weight
    balanced = 1 / torch.bincount(rows.items)[rows.items].double()
    balanced /= balanced.mean()
    return balanced if weight is None else balanced * weight
