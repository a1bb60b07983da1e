"""Collaborative features of rows, out of fold, and as columns of a ranking model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from recsys_cli.batch import Batch
from recsys_cli.features.hashing import below, hash_counters, mix
from recsys_cli.features.schema import Column, Kind, Role, Schema
from recsys_cli.models.collaborative.rows import Categories, Elements, Rows, factorize, grouped, positions, ridge
from recsys_cli.models.configs.ranking import CollaborativeOptions
from recsys_cli.models.model import TrainingContext

_BIAS_ROUNDS = 10
"""Alternations of the user and item biases."""
_PREFIX = "\x01collaborative"
_FOLD_SEED = 17


class CollaborativeFeatures(nn.Module):
    """Means, biases, factors, leanings and tastes of users and items, for each of T labels; all in buffers.

    User and item biases are fitted by alternating shrunken means. Three models fit their residuals: matrix factorization;
    leanings, regressions of a user's residuals on the items' co-occurrence embeddings, and vice versa; and tastes, mean residuals
    per user and category, and per item and category. Ids without rows have zeros, the overall mean.

    Args:
        config: Widths and penalties.
        schema: The prepared columns.
        categories: The other categorical columns.
        persistent: Include the buffers in a checkpoint.
    """

    rows_of_user: Tensor
    rows_of_item: Tensor
    mean: Tensor
    user_mean: Tensor
    item_mean: Tensor
    user_bias: Tensor
    item_bias: Tensor
    user_spread: Tensor
    item_spread: Tensor
    user_factors: Tensor
    item_factors: Tensor
    user_position: Tensor
    item_position: Tensor
    user_leaning: Tensor
    item_leaning: Tensor
    user_taste: Tensor
    item_taste: Tensor
    category_mean: Tensor

    def __init__(
        self, config: CollaborativeOptions, schema: Schema, categories: Categories, *, persistent: bool = True
    ) -> None:
        super().__init__()
        user, item = schema.only(Role.USER), schema.only(Role.ITEM)
        self.config, self.categories = config, categories
        self.sizes = int(user.cardinality or 0), int(item.cardinality or 0)
        # A user's taste for user features, such as an age group, would repeat the user's bias.
        self.tastes_of_user, self.tastes_of_item = (
            [number for number, column in enumerate(categories.small) if column.table != side.name]
            for side in (user, item)
        )
        register = partial(self.register_buffer, persistent=persistent)
        num_labels, small = len(schema.labels), categories.num_small_categories
        register("mean", torch.zeros(num_labels))
        register("category_mean", torch.zeros(num_labels, len(categories)))
        for side, size in zip(("user", "item"), self.sizes, strict=True):
            register(f"rows_of_{side}", torch.zeros(size))
            for name in ("mean", "bias", "spread"):
                register(f"{side}_{name}", torch.zeros(num_labels, size))
            register(f"{side}_factors", torch.zeros(num_labels, size, config.embedding_dim))
            register(f"{side}_position", torch.zeros(size, config.positions))
            register(f"{side}_leaning", torch.zeros(num_labels, size, config.positions))
            register(f"{side}_taste", torch.zeros(num_labels, size, small))

    @property
    def num_columns(self) -> int:
        """F, the number of columns returned by `columns`."""
        of_categories = len(self.categories.columns) + len(self.tastes_of_user) + len(self.tastes_of_item)
        return 2 + len(self.mean) * (10 + of_categories)

    def fit(self, rows: Rows, *, seed: int) -> None:
        """Fit to rows on the CPU, with this module on the CPU too; without rows all buffers stay zero."""
        if not len(rows):
            return
        for ids, counts in ((rows.users, self.rows_of_user), (rows.items, self.rows_of_item)):
            counts.copy_(torch.bincount(ids, minlength=len(counts)))
        of_users, of_items = positions((rows.users, rows.items), self.sizes, dim=self.config.positions, seed=seed)
        self.user_position.copy_(of_users)
        self.item_position.copy_(of_items)
        for number, label in enumerate(rows.labels.unbind(1)):
            self._fit_label(number, label, rows, seed)

    def _fit_label(self, number: int, label: Tensor, rows: Rows, seed: int) -> None:
        users, items, smoothing = rows.users, rows.items, self.config.smoothing
        self.mean[number] = label.mean()
        centered = label - label.mean()
        of_user, of_item = (torch.zeros(size, dtype=torch.float64) for size in self.sizes)
        for _ in range(_BIAS_ROUNDS):
            of_item = shrunk_means(items, centered - of_user[users], of_item, smoothing)
            of_user = shrunk_means(users, centered - of_item[items], of_user, smoothing)
        residuals = centered - of_user[users] - of_item[items]
        variance = residuals.var(correction=0)
        for side, ids, bias in (("user", users, of_user), ("item", items, of_item)):
            self.get_buffer(f"{side}_mean")[number] = shrunk_means(ids, centered, bias, smoothing)
            self.get_buffer(f"{side}_bias")[number] = bias
            excess = shrunk_means(ids, residuals.square() - variance, bias, smoothing)
            self.get_buffer(f"{side}_spread")[number] = (variance + excess).clamp(min=0).sqrt()
        scale = variance.sqrt().clamp(min=1e-9)
        self.user_factors[number], self.item_factors[number] = factorize(
            (users, items), residuals / scale, self.sizes, dim=self.config.embedding_dim, l2=self.config.factor_l2,
            rounds=self.config.factor_rounds, seed=seed,
        )  # fmt: skip
        self.user_factors[number] *= scale
        self._fit_leanings(number, residuals, rows)
        self._fit_tastes(number, residuals, rows)

    def _fit_leanings(self, number: int, residuals: Tensor, rows: Rows) -> None:
        users, items, l2 = rows.users, rows.items, self.config.position_l2
        for ids, other, vectors, leanings in (
            (users, items, self.item_position, self.user_leaning[number]),
            (items, users, self.user_position, self.item_leaning[number]),
        ):
            groups = grouped(ids, len(leanings))
            leanings.copy_(ridge(groups, vectors.double(), other, residuals, size=len(leanings), l2=l2))

    def _fit_tastes(self, number: int, residuals: Tensor, rows: Rows) -> None:
        elements, smoothing = rows.elements, self.config.smoothing
        values, weight = residuals[elements.row], elements.weight
        like = residuals.new_zeros(len(self.categories))
        self.category_mean[number] = shrunk_means(elements.category, values, like, smoothing, weight)
        small = elements.select(elements.category < self.categories.num_small_categories)
        for ids, tastes in ((rows.users, self.user_taste[number]), (rows.items, self.item_taste[number])):
            cells = ids[small.row] * tastes.shape[1] + small.category
            like = residuals.new_zeros(tastes.numel())
            means = shrunk_means(cells, residuals[small.row], like, smoothing, small.weight)
            tastes.copy_(means.view_as(tastes))

    def columns(self, rows: Rows) -> Tensor:
        """Return the features of rows, shape (N, F), float32; labels are not needed."""
        users, items, elements = rows.users, rows.items, rows.elements
        small = elements.select(elements.category < self.categories.num_small_categories)
        columns = [self.rows_of_user[users].double(), self.rows_of_item[items].double()]
        for number in range(len(self.mean)):
            biases = self.mean[number].double() + self.user_bias[number][users] + self.item_bias[number][items]
            of_user, of_item = self.user_leaning[number][users], self.item_leaning[number][items]
            product = _products(self.user_factors[number][users], self.item_factors[number][items])
            leanings = [_products(of_user, self.item_position[items]), _products(of_item, self.user_position[users])]
            columns += [biases, product, biases + product, *leanings, biases + leanings[0]]
            for name, ids in (("user", users), ("item", items)):
                columns += [self.get_buffer(f"{name}_{field}")[number][ids].double() for field in ("mean", "spread")]
            of_categories = self.category_mean[number][elements.category]
            columns += self._by_column(of_categories, elements, len(rows)).unbind(1)
            for selected, ids, tastes in (
                (self.tastes_of_user, users, self.user_taste[number]),
                (self.tastes_of_item, items, self.item_taste[number]),
            ):
                by_column = self._by_column(tastes[ids[small.row], small.category], small, len(rows))
                columns += [by_column[:, index] for index in selected]
        return torch.stack(columns, dim=1).float()

    def _by_column(self, values: Tensor, elements: Elements, num_rows: int) -> Tensor:
        """Return the mean of a row's element values per column, 0 without elements; shape (N, columns)."""
        num_columns = len(self.categories.columns)
        cells = elements.row * num_columns + elements.column
        return shrunk_means(
            cells, values.double(), values.new_zeros(num_rows * num_columns, dtype=torch.float64), 1e-9, elements.weight
        ).view(num_rows, num_columns)


def _products(first: Tensor, second: Tensor) -> Tensor:
    """Return rowwise dot products in float64, so that a row's position in a batch moves it over no split threshold of a tree."""
    return (first.double() * second).sum(dim=1)


def shrunk_means(ids: Tensor, values: Tensor, like: Tensor, smoothing: float, weight: Tensor | None = None) -> Tensor:
    """Return the mean of each id's values and `smoothing` zeros; 0 for ids without values.

    Args:
        ids: Id of each value, int64, shape (N,).
        values: Shape (N,).
        like: Template of the result, shape (S,), with ids below S.
        smoothing: Number of zeros.
        weight: Weight of each value, shape (N,); None for 1.
    """
    weight = torch.ones_like(values) if weight is None else weight
    sums = torch.zeros_like(like).index_add_(0, ids, values * weight)
    return sums / (torch.zeros_like(like).index_add_(0, ids, weight) + smoothing)


def folds_of_pairs(rows: Rows, num_folds: int, *, seed: int) -> Tensor:
    """Return the fold of each row, shape (N,), int64: a hash of user and item, so that all rows of a pair are in one fold."""
    users, items = (ids.cpu().numpy().astype(np.uint64) for ids in (rows.users, rows.items))
    folds = below(hash_counters(items, hash_counters(users, mix(seed))), num_folds)
    return torch.from_numpy(folds.astype(np.int64)).to(rows.users.device)


def fit_folds(
    config: CollaborativeOptions,
    schema: Schema,
    categories: Categories,
    rows: Rows,
    fold: Tensor,
    *,
    seed: int,
    progress: Callable[[int], None] = lambda _: None,
) -> list[CollaborativeFeatures]:
    """Return for each fold the features fitted to the rows of the other folds.

    Args:
        config: Widths, penalties and the number of folds.
        schema: The prepared columns.
        categories: The categorical columns.
        rows: Train rows, on the CPU.
        fold: Fold of each row, shape (N,).
        seed: Seed of the initial factors.
        progress: Called with the number of fitted folds.
    """
    parts = []
    for number in range(config.folds):
        part = CollaborativeFeatures(config, schema, categories)
        part.fit(rows.select(fold != number), seed=seed)
        parts.append(part)
        progress(number + 1)
    return parts


def out_of_fold(parts: Sequence[CollaborativeFeatures], rows: Rows, fold: Tensor) -> Tensor:
    """Return the features of each row from the part of its fold; shape (N, F), float32."""
    columns = [part.columns(rows.select(fold == number)) for number, part in enumerate(parts)]
    return torch.cat(columns)[torch.argsort(torch.argsort(fold, stable=True))]


def average_of_folds(
    config: CollaborativeOptions, schema: Schema, categories: Categories, parts: Sequence[CollaborativeFeatures] = ()
) -> CollaborativeFeatures:
    """Return features whose columns are the mean of the columns of all folds; without parts they are zero.

    Most columns are linear in the buffers, so the buffers are averaged. Those of dot products are not: concatenated vectors have
    the sum of the folds' products.
    """
    wide = {name: config.folds * getattr(config, name) for name in ("embedding_dim", "positions")}
    average = CollaborativeFeatures(config.model_copy(update=wide), schema, categories)
    for name, buffer in average.named_buffers() if parts else ():
        tensors = [part.get_buffer(name) for part in parts]
        if name.endswith(("_factors", "_leaning", "_position")):
            buffer.copy_(torch.cat(tensors, dim=-1))
        else:
            buffer.copy_(torch.stack(tensors).mean(0))
        if name in {"user_factors", "user_leaning", "item_leaning"}:
            buffer.div_(len(parts))
    return average


def with_collaborative_columns(schema: Schema, config: CollaborativeOptions) -> Schema:
    """Return a schema with the numeric columns added by `CollaborativeColumns`."""
    with torch.device("meta"):
        count = CollaborativeFeatures(config, schema, Categories(schema, config.max_categories)).num_columns
    columns = (
        Column(name=f"{_PREFIX}{number}", role=Role.FEATURE, kind=Kind.NUMERIC, dtype="float32")
        for number in range(count)
    )
    return Schema(columns=(*schema.columns, *columns))


class CollaborativeColumns(nn.Module):
    """Adds standardized collaborative features to a batch: out of fold in training, the mean over all folds in evaluation.

    Features fitted to all train rows would differ in scale from those of the folds: counts grow, and factors shrink less. A fold
    is a hash of (user, item), so every row of a pair is in the same fold. The mean is part of the checkpoint; the folds are fitted
    anew when training starts or resumes. Values outside of the folds' range are clipped: a column may be constant in training, such
    as the count of users with one row.

    Args:
        config: Widths, penalties and the number of folds.
        schema: Result of `with_collaborative_columns`.

    Raises:
        ConfigError: There is no label, or not one user and one item.
    """

    center: Tensor
    inverse_scale: Tensor
    lowest: Tensor
    highest: Tensor

    def __init__(self, config: CollaborativeOptions, schema: Schema) -> None:
        super().__init__()
        self.names = [name for name in schema.names if name.startswith(_PREFIX)]
        self.schema = Schema(columns=schema.select(lambda column: not column.name.startswith(_PREFIX)))
        self.config, self.categories = config, Categories(self.schema, config.max_categories)
        self.average = average_of_folds(config, self.schema, self.categories)
        self.parts = nn.ModuleList(
            CollaborativeFeatures(config, self.schema, self.categories, persistent=False) for _ in range(config.folds)
        )
        self.register_buffer("center", torch.zeros(len(self.names)))
        self.register_buffer("inverse_scale", torch.ones(len(self.names)))
        self.register_buffer("lowest", torch.full((len(self.names),), torch.finfo().min))
        self.register_buffer("highest", torch.full((len(self.names),), torch.finfo().max))

    @torch.no_grad()
    def fit(self, context: TrainingContext) -> None:
        """Fit to the rows of train, on the CPU; a context without rows changes nothing."""
        batches = [
            Rows.of(batch, self.schema, self.categories).counted(batch.weight)
            for batch in (each.to("cpu") for each in context.batches())
        ]
        if not batches:
            return
        rows = Rows.concat(batches)
        fold = self._folds(rows)
        parts = fit_folds(self.config, self.schema, self.categories, rows, fold, seed=0)
        average = average_of_folds(self.config, self.schema, self.categories, parts)
        for module, fitted in zip([self.average, *self.parts], [average, *parts], strict=True):
            for name, buffer in module.named_buffers():
                buffer.copy_(fitted.get_buffer(name))
        found = out_of_fold(parts, rows, fold)
        self.lowest.copy_(found.amin(0))
        self.highest.copy_(found.amax(0))
        columns = found.double()
        self.center.copy_(columns.mean(0))
        self.inverse_scale.copy_(1 / columns.std(0, correction=0).clamp(min=1e-6))

    @torch.no_grad()
    def forward(self, batch: Batch) -> Batch:
        """Return the batch with the columns added."""
        rows = Rows.of(batch, self.schema, self.categories)
        parts = [cast("CollaborativeFeatures", part) for part in self.parts]
        columns = out_of_fold(parts, rows, self._folds(rows)) if self.training else self.average.columns(rows)
        columns = (columns.clamp(self.lowest, self.highest) - self.center) * self.inverse_scale
        return replace(batch, features={**batch.features, **dict(zip(self.names, columns.unbind(1), strict=True))})

    def _folds(self, rows: Rows) -> Tensor:
        return folds_of_pairs(rows, self.config.folds, seed=_FOLD_SEED)
