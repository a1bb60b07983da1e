from __future__ import annotations

import numpy as np
import pytest
import torch

from recsys_cli.errors import DataError
from recsys_cli.interactions import Interactions
from recsys_cli.models.retrieval.item_catalog import ItemCatalog
from tests.planted import SCHEMA

ROWS = [  # user, item, label
    (3, 5, 1), (3, 9, 1), (3, 9, 1), (3, 7, 0),
    (4, 5, 1), (4, 7, 1), (4, 9, 1), (4, 12, 1), (4, 20, 1),
    (6, 12, 1), (6, 20, 0),
    (2, 5, 1), (6, 2, 1), (6, 1, 0),
]  # fmt: skip
ITEMS = [5, 7, 9, 12, 20]
LIKED = {3: {5, 9}, 4: set(ITEMS), 5: set(), 6: {12}}


def catalog(rows: list[tuple[int, int, int]] = ROWS) -> ItemCatalog:
    users, items, labels = (np.array(column) for column in zip(*rows, strict=True))
    interactions = Interactions(users.astype(np.int32), items.astype(np.int32), labels.astype(np.float32))
    return ItemCatalog(interactions, SCHEMA["user"], SCHEMA["item"], device=torch.device("cpu"))


def test_the_catalog_has_the_items_of_train_in_the_vocabulary() -> None:
    assert catalog().items.tolist() == ITEMS


def test_an_empty_catalog_is_an_error() -> None:
    with pytest.raises(DataError, match="no row of train has an item in the vocabulary"):
        catalog([(3, 2, 1), (3, 1, 1)])


def test_items_are_sampled_uniformly() -> None:
    torch.manual_seed(0)
    drawn = catalog().sample(2, 10_000)
    assert drawn.shape == (2, 10_000)
    shares = torch.bincount(drawn.flatten(), minlength=21)[ITEMS] / 20_000
    torch.testing.assert_close(shares, torch.full((5,), 0.2), atol=0.01, rtol=0)


@pytest.mark.parametrize("user", [3, 5, 6])
def test_sample_for_is_uniform_over_items_without_a_positive(user: int) -> None:
    torch.manual_seed(0)
    drawn = catalog().sample_for(torch.tensor([4, user, 4]), 20_000)[1]
    found, counts = drawn.unique(return_counts=True)
    free = sorted(set(ITEMS) - LIKED[user])
    assert found.tolist() == free
    torch.testing.assert_close(counts / 20_000, torch.full((len(free),), 1 / len(free)), atol=0.012, rtol=0)


def test_a_user_with_positives_of_all_items_gets_any_item() -> None:
    torch.manual_seed(0)
    assert catalog().sample_for(torch.tensor([4]), 200).unique().tolist() == ITEMS


def test_positives_of_a_large_catalog_are_never_sampled() -> None:
    draw = np.random.default_rng(0)
    rows = [
        (int(user), int(item), 1)
        for user, item in zip(draw.integers(3, 43, 900), draw.integers(3, 43, 900), strict=True)
    ]
    torch.manual_seed(0)
    users = torch.arange(3, 43)
    drawn = catalog(rows).sample_for(users, 500)
    pairs = {(user, item) for user, item, _ in rows}
    assert not any((int(user), int(item)) in pairs for user, items in zip(users, drawn, strict=True) for item in items)


@pytest.mark.parametrize("shorter", [0, 10**6])  # by the users of items, and by the items of users
def test_positives_returns_the_mask_of_pairs(monkeypatch: pytest.MonkeyPatch, shorter: int) -> None:
    monkeypatch.setattr("recsys_cli.models.retrieval.item_catalog._SHORTER", shorter)
    users, items = torch.tensor([6, 3, 5, 3, 4]), torch.tensor([9, 12, 9, 5, 2, 7])
    expected = [[int(item) in LIKED[int(user)] for item in items] for user in users]
    assert catalog().positives(users, items).tolist() == expected


def test_an_item_has_its_share_of_the_positive_rows() -> None:
    share = catalog().share(torch.tensor([9, 5, 7, 2, 30]))
    torch.testing.assert_close(share, torch.tensor([3, 3, 1, 1, 1]) / 11)
