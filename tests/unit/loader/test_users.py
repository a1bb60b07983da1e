"""Batches of users: each user with two items once per epoch, in an order given by (seed, epoch), and resumable."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
import torch

from recsys_cli.errors import ConfigError, DataError
from recsys_cli.features.schema import Column, Kind, Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.loader import UserLoader
from recsys_cli.loader.users import auto_batch_size

SCHEMA = Schema(
    columns=(
        Column(name="who", role=Role.USER, kind=Kind.CATEGORICAL, dtype="int32", cardinality=40, vocabulary="u"),
        Column(name="what", role=Role.ITEM, kind=Kind.CATEGORICAL, dtype="int32", cardinality=9, vocabulary="i"),
        Column(name="liked", role=Role.LABEL, kind=Kind.NUMERIC, dtype="int8"),
    )
)
# Users 3 to 25 have two items, 26 has one, 27 one and one that train does not know, and 2 is all whom train does not know.
MET = [(user, 3 + item) for user in range(3, 26) for item in (0, user % 5 + 1)]
MET += [(26, 4), (27, 4), (27, 2), (2, 4), (2, 5), (2, 6)]


def interactions(pairs: list[tuple[int, int]]) -> Interactions:
    users, items = np.array(pairs, np.int32).T
    return Interactions(users, items, np.ones(len(pairs), np.float32))


def loader(**options: int) -> UserLoader:
    return UserLoader(interactions(MET), SCHEMA, **{"batch_size": 5, "seed": 1, **options})


def ids(users: UserLoader) -> list[list[int]]:
    return [batch.features["who"].tolist() for batch in users]  # type: ignore[union-attr]


def test_users_come_once_if_they_have_two_items() -> None:
    users = loader()
    found = ids(users)
    together = list(chain.from_iterable(found))
    assert sorted(together) == list(range(3, 26)) != together
    assert [len(batch) for batch in found] == [5, 5, 5, 5, 3] == [users.step_rows(step) for step in range(len(users))]
    assert users.num_rows == 23


def test_a_batch_of_users_has_ids_and_ones() -> None:
    batch = next(iter(loader()))
    assert (set(batch.features), set(batch.labels), batch.weight) == ({"who"}, {"liked"}, None)
    assert batch.features["who"].dtype == torch.int32  # type: ignore[union-attr]
    assert torch.equal(batch.labels["liked"], torch.ones(5))


def test_order_of_users_is_decided_by_seed_and_epoch() -> None:
    def order(seed: int, epoch: int) -> list[list[int]]:
        users = loader(seed=seed)
        users.set_epoch(epoch)
        return ids(users)

    assert order(1, 2) == order(1, 2)
    assert len({str(order(seed, epoch)) for seed in (0, 1) for epoch in (0, 1, 2)}) == 6


def test_users_go_on_where_they_were() -> None:
    whole, users = loader(), loader()
    whole.set_epoch(3)
    expected = ids(whole)
    users.set_epoch(3)
    taken = iter(users)
    for _ in range(2):
        next(taken)
    state = users.state_dict()
    assert state == {"epoch": 3, "step": 2}
    other = loader()
    other.load_state_dict(state)
    assert ids(other) == expected[2:]
    assert ids(other) == expected  # an iteration after that is of the whole epoch


@pytest.mark.parametrize("ranks", [2, 3, 7])
def test_ranks_share_the_auto_batch_size(ranks: int) -> None:
    parts = [ids(loader(rank=rank, world_size=ranks)) for rank in range(ranks)]
    assert [list(chain.from_iterable(pieces)) for pieces in zip(*parts, strict=True)] == ids(loader())


def test_users_without_anything_next_are_refused() -> None:
    with pytest.raises(DataError, match="no user of train has two items"):
        UserLoader(interactions([(3, 3), (4, 3), (2, 4), (2, 4)]), SCHEMA, batch_size=4)


def test_impossible_shares_of_users_are_refused() -> None:
    with pytest.raises(ConfigError, match="batch_size=0, rank=0 of 1"):
        loader(batch_size=0)
    with pytest.raises(ConfigError, match="rank=2 of 2"):
        loader(rank=2, world_size=2)


@pytest.mark.parametrize(
    ("users", "size"),
    [(1, 32), (38_399, 32), (38_400, 64), (76_800, 128), (153_599, 128), (153_600, 256), (10_000_000, 256)],
)
def test_steps_grow_with_the_users_as_long_as_an_epoch_has_many(users: int, size: int) -> None:
    assert auto_batch_size(users) == size


def test_a_loader_of_users_takes_its_size_from_them() -> None:
    users = np.repeat(np.arange(3, 38_403, dtype=np.int32), 2)
    rows = Interactions(users, np.full(len(users), 3, np.int32), np.ones(len(users), np.float32))
    loader = UserLoader(rows, SCHEMA, batch_size="auto")
    assert (loader.batch_size, len(loader)) == (64, 600)
    assert UserLoader(rows, SCHEMA, batch_size=100).batch_size == 100
