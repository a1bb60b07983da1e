"""LightGBM on the plan's features and collaborative features."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recsys_cli.batch import Batch, Ragged, as_lists
from recsys_cli.errors import MissingExtraError, TrainingError
from recsys_cli.features.schema import Schema
from recsys_cli.models.collaborative.features import CollaborativeFeatures, fit_folds, folds_of_pairs, out_of_fold
from recsys_cli.models.collaborative.rows import Categories, Elements, Rows
from recsys_cli.models.configs.ranking import LightGBMConfig
from recsys_cli.models.model import ClosedFormModel, Progress, TrainingContext, no_progress
from recsys_cli.models.ranking.layers import is_vector, numbers, numeric_columns

_TREES: dict[str, tuple[str, ...]] = {
    "trees": (),
    "trees_cold_user": ("users",),
    "trees_cold_item": ("items",),
    "trees_cold_both": ("users", "items"),
}
"""Buffers of trees, each with the cold-start ids of the rows it scores."""


_OPTIONS = {"learning_rate", "num_leaves", "min_data_in_leaf", "lambda_l2", "feature_fraction", "bagging_fraction"}
"""Options under LightGBM's own names."""


class Plain:
    """Numeric columns, and the categories of low-cardinality columns.

    A vector becomes one column per element, and another list of numbers its mean. A single category is a categorical
    feature of the trees. A list of categories becomes one column per category, with its count in the row.
    """

    def __init__(self, schema: Schema, categories: Categories) -> None:
        self.categories = categories
        vectors = [column for column in schema.numeric if column.ragged and is_vector(column)]
        self.vectors = numeric_columns(vectors)
        self.numeric = sorted(column.name for column in schema.numeric if column not in vectors)
        self.single = [column.name for column in categories.small if not column.ragged]
        self.lists = [number for number, column in enumerate(categories.small) if column.ragged]

    def columns(self, batch: Batch, elements: Elements) -> Tensor:
        """Return the matrix, shape (N, F), float32: columns of `single` first."""
        columns = [batch.features[name] for name in self.single]
        columns += [_mean(batch.features[name]) for name in self.numeric]
        counts = torch.zeros(batch.num_rows, self.categories.num_small_categories, device=elements.row.device)
        small = elements.select(elements.category < counts.shape[1])
        counts.index_put_((small.row, small.category), small.weight.float(), accumulate=True)
        starts = self.categories.starts
        parts = [column.float().unsqueeze(1) for column in columns if isinstance(column, Tensor)]
        parts += [numbers(batch, self.vectors)] if self.vectors.widths else []
        parts += [counts[:, starts[number] : starts[number + 1]] for number in self.lists]
        return torch.cat(parts, dim=1) if parts else counts[:, :0]


def _mean(feature: Tensor | Ragged) -> Tensor:
    """Return the mean of each row; NaN, a missing value for trees, for an empty list."""
    lists = as_lists(feature)
    lengths = lists.offsets.diff()
    row = torch.repeat_interleave(lengths)
    weight = torch.ones_like(lists.values) if lists.weights is None else lists.weights
    sums, weights = (
        torch.zeros(len(lengths), dtype=torch.float64, device=row.device).index_add_(0, row, values.double())
        for values in (lists.values * weight, weight)
    )
    return sums / weights


try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about its own optional packages
        import lightgbm
except ImportError as _error:
    raise MissingExtraError.for_extra("lightgbm", what="the model lightgbm") from _error


class LightGBM(ClosedFormModel):
    """Trees that predict the main label of a row from its own features and out-of-fold collaborative features.

    Features of a train row come from the other folds, so that its own label is no part of them; features of a new row come from
    all of train. Rows with a cold-start user or item have separate trees, grown on train rows without those ids, because other
    trees rely on columns that are empty there. Folds and random choices follow from torch's global generator at construction.
    Trees do not depend on the number of threads; positions may differ in their last digits with another number of LAPACK threads.

    Raises:
        ConfigError: There is no label, or not one user and one item.
    """

    probabilistic = True
    loss_options = frozenset({"features.weight"})
    by_content = True

    def __init__(self, config: LightGBMConfig, schema: Schema) -> None:
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

    def fit(self, context: TrainingContext, *, progress: Progress = no_progress) -> None:
        """Fit the collaborative features, per fold and of all rows, and the trees; on the CPU, with all of train in memory."""
        rows, plain, weight = self._read(context)
        total = self.config.folds + 1 + len(_TREES)
        fold = folds_of_pairs(rows, self.config.folds, seed=self.seed)
        parts = fit_folds(
            self.config, self.schema, self.categories, rows, fold,
            seed=self.seed, progress=lambda done: progress(done, total),
        )  # fmt: skip
        whole = CollaborativeFeatures(self.config, self.schema, self.categories)
        whole.fit(rows, seed=self.seed)
        self.collaborative.load_state_dict(whole.state_dict())
        progress(self.config.folds + 1, total)
        for number, (name, cold) in enumerate(_TREES.items()):
            columns = torch.cat([plain, out_of_fold(parts, rows.without(*cold), fold)], dim=1)
            self._train_trees(name, columns, rows, _balanced(weight, rows, cold))
            progress(self.config.folds + 2 + number, total)

    def _train_trees(self, name: str, columns: Tensor, rows: Rows, weight: Tensor | None) -> None:
        label = rows.labels[:, [column.name for column in self.schema.labels].index(self.label)]
        data = lightgbm.Dataset(
            columns.numpy(),
            label.numpy(),
            weight=None if weight is None else weight.numpy(),
            categorical_feature=list(range(len(self.plain.single))),
        )
        booster = lightgbm.train(self._lightgbm_parameters(), data, num_boost_round=self.config.num_trees)
        text = booster.model_to_string().encode()
        self._boosters[name] = booster
        setattr(self, name, torch.from_numpy(np.frombuffer(text, np.uint8).copy()).to(self.device))

    def _read(self, context: TrainingContext) -> tuple[Rows, Tensor, Tensor | None]:
        """Return the rows of train with a weight above 0, their own features, and their weights."""
        parts, plain, weights = [], [], []
        for device_batch in context.batches():
            batch = device_batch.to("cpu")
            rows = Rows.of(batch, self.schema, self.categories)
            parts.append(rows)
            plain.append(self.plain.columns(batch, rows.elements))
            weights += [batch.weight] if batch.weight is not None else []
        if not weights:
            return Rows.concat(parts), torch.cat(plain), None
        weight = torch.cat(weights)
        return Rows.concat(parts).counted(weight), torch.cat(plain)[weight > 0], weight[weight > 0]

    def _lightgbm_parameters(self) -> dict[str, Any]:
        return {
            **self.config.model_dump(include=_OPTIONS),
            # `cross_entropy` allows labels between 0 and 1; trees of a squared error do not depend on the label's unit.
            "objective": "regression" if self.schema.label.is_regression else "cross_entropy",
            "bagging_freq": 1,
            "seed": self.seed,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }

    def score(self, batch: Batch) -> Tensor:
        """Return the sum of the trees, a logit or the value of a regression label; shape (B,).

        Raises:
            TrainingError: The model is not fitted.
        """
        rows = Rows.of(batch, self.schema, self.categories)
        plain = self.plain.columns(batch, rows.elements)
        columns = torch.cat([plain, self.collaborative.columns(rows)], dim=1)
        matrix, logits = columns.cpu().numpy(), np.zeros(len(rows))
        cold_user = self.collaborative.rows_of_user[rows.users] == 0
        cold_item = self.collaborative.rows_of_item[rows.items] == 0
        for name, cold in _TREES.items():
            mask = (cold_user == ("users" in cold)) & (cold_item == ("items" in cold))
            if (selected := mask.cpu().numpy()).any():
                logits[selected] = self._booster(name).predict(matrix[selected], raw_score=True)
        return torch.from_numpy(logits).float().to(self.device)

    def _booster(self, name: str) -> lightgbm.Booster:
        if name not in self._boosters:
            text = self.get_buffer(name)
            if not len(text):
                raise TrainingError("the model lightgbm has no trees yet", hint="run `recsys train`")
            self._boosters[name] = lightgbm.Booster(model_str=text.cpu().numpy().tobytes().decode())
        return self._boosters[name]

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Resize the tree buffers to those of the checkpoint."""
        self._boosters = {}
        for name in _TREES:
            if (trees := state_dict.get(f"{prefix}{name}")) is not None:
                setattr(self, name, self.get_buffer(name).new_empty(len(trees)))
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _balanced(weight: Tensor | None, rows: Rows, cold: Sequence[str]) -> Tensor | None:
    """Return row weights; without item ids all items weigh the same, because a cold-start item resembles a rare one."""
    if "items" not in cold:
        return weight
    balanced = 1 / torch.bincount(rows.items)[rows.items].double()
    balanced /= balanced.mean()
    return balanced if weight is None else balanced * weight
