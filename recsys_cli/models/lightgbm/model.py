"""Gradient-boosted trees by LightGBM: the only file that knows it. The trees are kept as its text format, in a buffer of bytes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recsys_cli.batch import Batch
from recsys_cli.errors import MissingExtraError, TrainingError
from recsys_cli.features.hashing import hash_counters, mix
from recsys_cli.features.schema import Schema
from recsys_cli.models.lightgbm.collaborative import Collaborative
from recsys_cli.models.lightgbm.config import Config
from recsys_cli.models.lightgbm.plain import Plain
from recsys_cli.models.lightgbm.rows import Categories, Rows
from recsys_cli.models.model import Fitted, Known, Progress, unheard

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of packages that it looks for
        import lightgbm
except ImportError as _error:
    raise MissingExtraError.for_extra("lightgbm", what="the model lightgbm") from _error


class Model(Fitted):
    """Trees that predict the main label of a row from its features and from what other rows tell of its user and item.

    What a row of train is told is learnt without the fold that the row is in, so its own label is no part of it; a new row is
    told what all of train says. Folds and draws follow from torch's global generator at construction. Trees are grown the
    same by any number of threads; positions may differ in their last digits where LAPACK has another number of them.

    Raises:
        ConfigError: There is no label, or not one user and one item.
    """

    probabilistic = True
    by_content = True
    trees: Tensor

    def __init__(self, config: Config, schema: Schema) -> None:
        super().__init__()
        self.config, self.schema = config, schema
        self.label = schema.label.name
        self.categories = Categories(schema, config.max_categories)
        self.collaborative = Collaborative(config, schema, self.categories)
        self.plain = Plain(schema, self.categories)
        self.seed = int(torch.randint(2**31 - 1, ()))
        self.register_buffer("trees", torch.zeros(0, dtype=torch.uint8))
        self._booster: lightgbm.Booster | None = None

    def fit(self, known: Known, *, progress: Progress = unheard) -> None:
        """Learn what is told of rows, fold by fold and of all, and grow the trees; on the CPU, with all of train in memory."""
        rows, plain, weight = self._read(known)
        total = self.config.folds + 2
        told = self.out_of_fold(rows, progress=lambda done, _: progress(done, total))
        whole = Collaborative(self.config, self.schema, self.categories)
        whole.fit(rows, seed=self.seed)
        self.collaborative.load_state_dict(whole.state_dict())
        progress(total - 1, total)
        label = rows.labels[:, [column.name for column in self.schema.labels].index(self.label)]
        data = lightgbm.Dataset(
            torch.cat([plain, told], dim=1).numpy(),
            label.numpy(),
            weight=None if weight is None else weight.numpy(),
            categorical_feature=list(range(len(self.plain.single))),
        )
        self._booster = lightgbm.train(self._how(), data, num_boost_round=self.config.num_trees)
        text = self._booster.model_to_string().encode()
        self.trees = torch.from_numpy(np.frombuffer(text, np.uint8).copy()).to(self.device)
        progress(total, total)

    def _read(self, known: Known) -> tuple[Rows, Tensor, Tensor | None]:
        """Return the rows of train, their own features, and what they count."""
        parts, plain, weights = [], [], []
        for some in known.batches():
            batch = some.to("cpu")
            rows = Rows.of(batch, self.schema, self.categories)
            parts.append(rows)
            plain.append(self.plain.columns(batch, rows.elements))
            weights += [batch.weight] if batch.weight is not None else []
        return Rows.joined(parts), torch.cat(plain), torch.cat(weights) if weights else None

    def out_of_fold(self, rows: Rows, *, progress: Progress = unheard) -> Tensor:
        """Return what rows of train are told, each by the folds that it is not in; shape (N, F), float32.

        Args:
            rows: In file order: a row's fold is a hash of its number.
            progress: Hears of the folds.
        """
        folds = self.config.folds
        hashed = hash_counters(np.arange(len(rows), dtype=np.uint64), mix(self.seed))
        fold = torch.from_numpy((hashed % np.uint64(folds)).astype(np.int64))
        parts = []
        for number in range(folds):
            part = Collaborative(self.config, self.schema, self.categories)
            part.fit(rows.chosen(fold != number), seed=self.seed)
            parts.append(part.columns(rows.chosen(fold == number)))
            progress(number + 1, folds)
        return torch.cat(parts)[torch.argsort(torch.argsort(fold, stable=True))]

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
        logits = self._grown().predict(told.cpu().numpy(), raw_score=True)
        return torch.from_numpy(np.asarray(logits)).float().to(self.device)

    def _grown(self) -> lightgbm.Booster:
        if self._booster is None:
            if not len(self.trees):
                raise TrainingError("the model lightgbm has no trees yet", hint="recsys train")
            self._booster = lightgbm.Booster(model_str=self.trees.cpu().numpy().tobytes().decode())
        return self._booster

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Let the trees be as long as those in the file."""
        if (trees := state_dict.get(f"{prefix}trees")) is not None:
            self.trees = self.trees.new_empty(len(trees))
            self._booster = None
        super()._load_from_state_dict(state_dict, prefix, *rest)
