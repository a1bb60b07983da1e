"""What the page shows of rankings: figures that are those of the evaluation, and users as they are in the data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.names import IdNames
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.evaluation.report.users import ExampleUser, ListedItem, example_users, sample_users
from recsys_cli.features.schema import FIRST, TICKS, Role
from recsys_cli.interactions import Interactions
from recsys_cli.workspace import PreparedData

MakePrepared = Callable[..., PreparedData]


def rankings(items: dict[str, list[list[int]]], wanted: list[set[int]], *, k: tuple[int, ...] = (2, 4)) -> Rankings:
    """Rank for users 3, 4 and so on; 0 is no item."""
    lists = {system: np.array(found, np.int32) for system, found in items.items()}
    users = np.arange(FIRST, FIRST + len(wanted))
    nothing = np.empty(0)
    return Rankings(
        split="valid",
        k=k,
        protocol={},
        problem="",
        rows="",
        users=users,
        user_hashes=users.astype(np.uint64),
        num_relevant=np.array([len(each) for each in wanted]),
        items=lists,
        hits={
            system: np.array([[item in each for item in row] for row, each in zip(found, wanted, strict=True)])
            for system, found in lists.items()
        },
        sampled=np.empty((len(wanted), 0), np.int32),
        logits=nothing.astype(np.float32),
        labels=nothing.astype(np.uint8),
        row_users=nothing.astype(np.int32),
        row_items=nothing.astype(np.int32),
        row_clusters=nothing.astype(np.int32),
    )


@pytest.fixture
def splits() -> tuple[Interactions, Interactions]:
    """User 3 met items 3 (liked), 4 and 5 (liked) in train, in this order, and in valid items 6 and 7 (liked) and 8."""

    def rows(user: list[int], item: list[int], label: list[int], times: list[int]) -> Interactions:
        return Interactions(
            np.array(user, np.int32), np.array(item, np.int32), np.array(label, np.float32), None, np.array(times)
        )

    day = 86_400
    return (
        rows([3, 4, 3, 3], [3, 9, 4, 5], [1, 1, 0, 1], [10**9, 5, 10**9 + day, 10**9 + 2 * day]),
        rows([3, 3, 3, 4], [6, 7, 8, 3], [1, 1, 0, 1], [10**9] * 4),
    )


def user(splits: tuple[Interactions, Interactions], data: PreparedData, **config: str) -> ExampleUser:
    titles = pa.array([f"title {number}" for number in range(30)])
    ranked = rankings({"model": [[7, 9, 0, 0], [3, 0, 0, 0]]}, [{6, 7}, {3}])
    one = replace(
        ranked,
        users=ranked.users[:1],
        user_hashes=ranked.user_hashes[:1],
        num_relevant=ranked.num_relevant[:1],
        items={"model": ranked.items["model"][:1]},
        hits={"model": ranked.hits["model"][:1]},
    )
    (found,) = sample_users(one, *splits, IdNames(data, titles), EvaluateConfig.model_validate(config))
    return found


def test_example_user_has_history_recommendations_and_ground_truth(
    splits: tuple[Interactions, Interactions], make_prepared: MakePrepared
) -> None:
    found = user(splits, make_prepared())

    assert found.name == "0"
    assert found.history == [
        ListedItem("title 2", "Odd", "2001-09-11", is_marked=True),
        ListedItem("title 1", "Even, Both", "2001-09-10"),
        ListedItem("title 0", "Odd", "2001-09-09", is_marked=True),
    ]
    assert found.recommended == [ListedItem("title 4", "Odd", "1", is_marked=True), ListedItem("title 6", "Odd", "2")]
    assert found.ground_truth == [
        ListedItem("title 4", "Odd", "rank 1", is_marked=True),
        ListedItem("title 3", "Even, Both", "–"),
    ]
    assert found.rows.startswith("History: 3 interactions, 2 of them with label 1. Ground truth: 2,")
    assert found.rows.endswith("of which 1 in the top 2")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_history_has_days_in_any_unit_of_time(
    unit: str, splits: tuple[Interactions, Interactions], make_prepared: MakePrepared
) -> None:
    data = make_prepared()
    units = {Role.TIMESTAMP: {"unit": unit}}
    columns = tuple(one.model_copy(update=units.get(one.role, {})) for one in data.schema.columns)
    data.schema.model_copy(update={"columns": columns}).write(data.folder / "schema.json")
    data = PreparedData(data.folder)
    assert data.schema.ticks == TICKS[unit]
    history, held_out = (replace(part, times=part.times * TICKS[unit]) for part in splits)  # type: ignore[operator]

    found = user((history, held_out), data)

    assert [line.note for line in found.history] == ["2001-09-11", "2001-09-10", "2001-09-09"]


def test_ground_truth_follows_the_config(
    splits: tuple[Interactions, Interactions], make_prepared: MakePrepared
) -> None:
    found = user(splits, make_prepared(), relevance="all")
    assert [line.title for line in found.ground_truth] == ["title 4", "title 3", "title 5"]


def test_sample_of_users_depends_on_seed_and_raw_ids(make_prepared: MakePrepared) -> None:
    data = make_prepared()
    ranked = rankings({"model": [[3]] * 40}, [{4}] * 40, k=(1,))

    def chosen(found: Rankings, seed: int) -> list[str]:
        empty = Interactions(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float32))
        users = sample_users(found, empty, empty, IdNames(data), EvaluateConfig(seed=seed))
        return [user.name for user in users]

    first = chosen(ranked, 0)
    assert len(set(first)) == 5
    assert chosen(ranked, 0) == first
    assert chosen(ranked, 1) != first
    fewer = replace(ranked, user_hashes=ranked.user_hashes[::-1].copy())
    assert chosen(fewer, 0) == [str(39 - int(name)) for name in first]


def test_without_rankings_nothing_is_shown(make_prepared: MakePrepared) -> None:
    data = make_prepared()
    assert example_users(rankings({}, []), data, IdNames(data), EvaluateConfig()) == []
