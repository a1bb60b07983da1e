"""Interaction matrices with schemas of their size, for models of interactions only."""

from __future__ import annotations

import numpy as np
import torch

from recsys_cli.features.schema import FIRST, Column, Kind, Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.models import build
from recsys_cli.models.model import Model, TrainingContext


def ids(name: str, role: Role, number: int) -> Column:
    size = number + FIRST
    return Column(name=name, role=role, kind=Kind.CATEGORICAL, dtype="int32", cardinality=size, vocabulary=name)


def schema_of(matrix: np.ndarray) -> Schema:
    num_users, num_items = matrix.shape
    return Schema(columns=(ids("user", Role.USER, num_users), ids("item", Role.ITEM, num_items)))


def rows_of_matrix(matrix: np.ndarray) -> Interactions:
    """Interactions of a matrix: user and item i have the id i + 3."""
    users, items = (np.int32(FIRST) + column.astype(np.int32) for column in np.nonzero(matrix))
    return Interactions(users, items, np.ones(len(users), np.float32))


def context_of(matrix: np.ndarray) -> TrainingContext:
    return TrainingContext(lambda: rows_of_matrix(matrix), dict)


def some_matrix(num_users: int, num_items: int, *, seed: int = 0) -> np.ndarray:
    """Zeros and ones: two groups of users with items of their own, and some noise; the first items are the most popular."""
    draw = np.random.default_rng(seed)
    same = np.arange(num_users)[:, None] % 2 == np.arange(num_items) % 2
    return (draw.random((num_users, num_items)) < np.where(same, 0.5, 0.1)).astype(np.float64)


def scores_after(name: str, matrix: np.ndarray, *, later: np.ndarray | None = None, **options: object) -> np.ndarray:
    """Fit a model to a matrix, and let it score all users and items by the same or a later one."""
    return fitted(name, matrix, later=later, **options)[1]


def fitted(
    name: str, matrix: np.ndarray, *, later: np.ndarray | None = None, **options: object
) -> tuple[Model, np.ndarray]:
    torch.manual_seed(0)
    model = build(name, dict(options), schema_of(matrix))
    model.fit(context_of(matrix))
    model.set_context(context_of(matrix if later is None else later))
    users, items = (torch.arange(size) + FIRST for size in matrix.shape)
    with torch.inference_mode():
        return model, model.scores(users, items).numpy()
