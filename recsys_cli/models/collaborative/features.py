"""What rows tell of users and items: learnt from some rows, and told of others as columns of numbers."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from recsys_cli.features.schema import Role, Schema
from recsys_cli.models.collaborative.config import CollaborativeOptions
from recsys_cli.models.collaborative.cooccurrence import positions
from recsys_cli.models.collaborative.factors import factorise, grouped, ridge
from recsys_cli.models.collaborative.rows import Categories, Elements, Rows

_BIAS_ROUNDS = 10
"""How often the biases of users and those of items are solved for in turn."""


class CollaborativeFeatures(nn.Module):
    """Means, biases, factors, leanings and tastes of users and items, for each of T labels; all in buffers.

    A bias is what is left of a user's labels after those of the items, and the other way round. Three things explain what biases
    leave: factors; leanings, which are regressions of a user's labels on where the items are by who met them, and the other way
    round; and tastes, how a user takes to a category, or an item to a category of users. Ids without rows have zeros: they are told
    of as the mean.

    Args:
        config: Widths and penalties.
        schema: The prepared columns.
        categories: Of the other columns.
        persistent: Whether the buffers are part of a checkpoint.
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
        # A user's taste for what belongs to the user, such as an age group, is the user's bias again.
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
        """F, the number of columns that `columns` returns."""
        of_categories = len(self.categories.columns) + len(self.tastes_of_user) + len(self.tastes_of_item)
        return 2 + len(self.mean) * (10 + of_categories)

    def fit(self, rows: Rows, *, seed: int) -> None:
        """Learn from rows, which are on the CPU as this is."""
        for ids, counts in ((rows.users, self.rows_of_user), (rows.items, self.rows_of_item)):
            counts.copy_(torch.bincount(ids, minlength=len(counts)))
        found = positions((rows.users, rows.items), self.sizes, dim=self.config.positions, seed=seed)
        self.user_position.copy_(found[0])
        self.item_position.copy_(found[1])
        for number, label in enumerate(rows.labels.unbind(1)):
            self._learn(number, label, rows, seed)

    def _learn(self, number: int, label: Tensor, rows: Rows, seed: int) -> None:
        users, items, smoothing = rows.users, rows.items, self.config.smoothing
        self.mean[number] = label.mean()
        centred = label - label.mean()
        of_user, of_item = (torch.zeros(size, dtype=torch.float64) for size in self.sizes)
        for _ in range(_BIAS_ROUNDS):
            of_item = shrunk_means(items, centred - of_user[users], of_item, smoothing)
            of_user = shrunk_means(users, centred - of_item[items], of_user, smoothing)
        left = centred - of_user[users] - of_item[items]
        variance = left.var(correction=0)
        for side, ids, bias in (("user", users, of_user), ("item", items, of_item)):
            self.get_buffer(f"{side}_mean")[number] = shrunk_means(ids, centred, bias, smoothing)
            self.get_buffer(f"{side}_bias")[number] = bias
            excess = shrunk_means(ids, left.square() - variance, bias, smoothing)
            self.get_buffer(f"{side}_spread")[number] = (variance + excess).clamp(min=0).sqrt()
        scale = variance.sqrt().clamp(min=1e-9)
        self.user_factors[number], self.item_factors[number] = factorise(
            (users, items), left / scale, self.sizes, dim=self.config.embedding_dim, l2=self.config.factor_l2,
            rounds=self.config.factor_rounds, seed=seed,
        )  # fmt: skip
        self.user_factors[number] *= scale
        self._learn_leanings(number, left, rows)
        self._learn_tastes(number, left, rows)

    def _learn_leanings(self, number: int, left: Tensor, rows: Rows) -> None:
        users, items, l2 = rows.users, rows.items, self.config.position_l2
        for ids, other, vectors, leanings in (
            (users, items, self.item_position, self.user_leaning[number]),
            (items, users, self.user_position, self.item_leaning[number]),
        ):
            groups = grouped(ids, len(leanings))
            leanings.copy_(ridge(groups, vectors.double(), other, left, size=len(leanings), l2=l2))

    def _learn_tastes(self, number: int, left: Tensor, rows: Rows) -> None:
        elements, smoothing = rows.elements, self.config.smoothing
        values, weight = left[elements.row], elements.weight
        like = left.new_zeros(len(self.categories))
        self.category_mean[number] = shrunk_means(elements.category, values, like, smoothing, weight)
        small = elements.chosen(elements.category < self.categories.num_small_categories)
        for ids, tastes in ((rows.users, self.user_taste[number]), (rows.items, self.item_taste[number])):
            cells = ids[small.row] * tastes.shape[1] + small.category
            like = left.new_zeros(tastes.numel())
            found = shrunk_means(cells, left[small.row], like, smoothing, small.weight)
            tastes.copy_(found.view_as(tastes))

    def columns(self, rows: Rows) -> Tensor:
        """Return what is told of rows, shape (N, F), float32; needs no labels."""
        users, items, elements = rows.users, rows.items, rows.elements
        small = elements.chosen(elements.category < self.categories.num_small_categories)
        told = [self.rows_of_user[users].double(), self.rows_of_item[items].double()]
        for number in range(len(self.mean)):
            biases = self.mean[number].double() + self.user_bias[number][users] + self.item_bias[number][items]
            of_user, of_item = self.user_leaning[number][users], self.item_leaning[number][items]
            product = _products(self.user_factors[number][users], self.item_factors[number][items])
            leanings = [_products(of_user, self.item_position[items]), _products(of_item, self.user_position[users])]
            told += [biases, product, biases + product, *leanings, biases + leanings[0]]
            for name, ids in (("user", users), ("item", items)):
                told += [self.get_buffer(f"{name}_{what}")[number][ids].double() for what in ("mean", "spread")]
            of_categories = self.category_mean[number][elements.category]
            told += self._by_column(of_categories, elements, len(rows)).unbind(1)
            for wanted, ids, tastes in (
                (self.tastes_of_user, users, self.user_taste[number]),
                (self.tastes_of_item, items, self.item_taste[number]),
            ):
                found = self._by_column(tastes[ids[small.row], small.category], small, len(rows))
                told += [found[:, place] for place in wanted]
        return torch.stack(told, dim=1).float()

    def _by_column(self, values: Tensor, elements: Elements, num_rows: int) -> Tensor:
        """Return the mean of what is told of a row's elements, for each column; 0 where it has none; shape (N, columns)."""
        num_columns = len(self.categories.columns)
        places = elements.row * num_columns + elements.column
        return shrunk_means(
            places,
            values.double(),
            values.new_zeros(num_rows * num_columns, dtype=torch.float64),
            1e-9,
            elements.weight,
        ).view(num_rows, num_columns)


def _products(first: Tensor, second: Tensor) -> Tensor:
    """Return the product of each pair of vectors; in double precision, so that company in a batch moves no row over a threshold."""
    return (first.double() * second).sum(dim=1)


def shrunk_means(ids: Tensor, values: Tensor, like: Tensor, smoothing: float, weight: Tensor | None = None) -> Tensor:
    """Return the mean of each id's values together with so many zeros; 0 for ids that have none.

    Args:
        ids: Whose value, int64, shape (N,).
        values: Shape (N,).
        like: What the result is like, shape (S,): ids are below S.
        smoothing: How many zeros.
        weight: How much each value counts, shape (N,); None where each counts once.
    """
    weight = torch.ones_like(values) if weight is None else weight
    sums = torch.zeros_like(like).index_add_(0, ids, values * weight)
    return sums / (torch.zeros_like(like).index_add_(0, ids, weight) + smoothing)
