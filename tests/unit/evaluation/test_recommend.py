"""Nearest items by direction of their vectors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from recsys_cli.batch import Batch
from recsys_cli.evaluation.recommend import ScoredItem, knows, nearest
from recsys_cli.models.model import Model
from recsys_cli.workspace import PreparedData


class Compass(Model):
    """Items 3, 4, 5 and so on point 0, 10, 20 and so on degrees away from north and are as long as their id."""

    scoring = "dot_product"

    def item_vectors(self, items: Tensor) -> Tensor:
        angles = torch.deg2rad((items - 3) * 10.0)
        return torch.stack([angles.cos(), angles.sin()], dim=1) * items.unsqueeze(1)

    def score(self, batch: Batch) -> Tensor:
        raise NotImplementedError


def test_nearest_items_are_those_of_the_same_direction_whatever_their_length(
    make_prepared: Callable[..., PreparedData],
) -> None:
    model, data = Compass().eval(), make_prepared()

    found = nearest(model, data, 10, k=4)

    assert knows(model, data, 10)
    assert {one.item_idx for one in found[:2]} == {9, 11}
    assert {one.item_idx for one in found[2:]} == {8, 12}
    assert found[0] == ScoredItem(found[0].item_idx, pytest.approx(np.cos(np.deg2rad(10)), abs=1e-5))
