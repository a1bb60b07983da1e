"""What the page shows of rankings: figures that are those of the evaluation, and users as they are in the data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.names import IdNames, SplitInteractions
from recsys_cli.evaluation.new_users import ColdItems
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.evaluation.report.rankings import (
    CONSUMED,
    ExampleUser,
    ListedItem,
    RankingSection,
    metrics_at_k,
    popularity_curves,
    sample_users,
)
from recsys_cli.evaluation.result import Curve
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


def test_metrics_over_k_are_those_one_counts_by_hand() -> None:
    ranked = rankings({"model": [[5, 6, 7, 8], [5, 6, 7, 8]]}, [{5}, {8, 9}])

    found = metrics_at_k(ranked, EvaluateConfig(bootstrap=50))

    def values(metric: str) -> list[float | None]:
        return [estimate.value for estimate in found.estimates[metric]["model"]]

    assert found.k == (1, 2, 3, 4)
    assert values("hr") == [0.5, 0.5, 0.5, 1.0]
    assert values("recall") == [0.5, 0.5, 0.5, 0.75]
    assert values("precision") == pytest.approx([0.5, 0.25, 1 / 6, 0.25])
    assert all(e.low <= e.value <= e.high for e in found.estimates["ndcg"]["model"])  # type: ignore[operator]


def test_long_rankings_are_plotted_at_few_cut_offs_and_those_of_the_config() -> None:
    ranked = rankings({"model": [list(range(FIRST, FIRST + 500))]}, [{4}], k=(10, 77, 500))

    ks = metrics_at_k(ranked, EvaluateConfig(bootstrap=10)).k

    assert {*range(1, 6), 77, 500} <= set(ks)
    assert len(ks) < 16
    assert list(ks) == sorted(ks)


def test_popularity_is_the_share_of_the_most_popular_items() -> None:
    ids = np.array([3, 3, 3, 4, 5, 5], np.int32)  # 3 comes first, then 5, then 4
    train = Interactions(ids, ids, np.ones(6, np.float32))
    ranked = rankings({"model": [[4, 5, 3], [4, 3, 5]], "nothing": [[0, 0, 0], [0, 0, 0]]}, [{4}, {4}], k=(2, 3))

    found = popularity_curves(ranked, train, ColdItems(6, 0))

    assert found[CONSUMED] == Curve(x=(1, 2, 3), y=(0.5, round(5 / 6, 6), 1.0))
    assert found["model"] == Curve(x=(1, 2, 3), y=(0.25, 0.5, 1.0))  # of 2 places each: 4, 5, 4, 3
    assert found["nothing"] == Curve(x=(), y=())


@pytest.fixture
def splits() -> SplitInteractions:
    """User 3 met items 3 (liked), 4 and 5 (liked) in train, in this order, and in valid items 6 and 7 (liked) and 8."""

    def rows(user: list[int], item: list[int], label: list[int], times: list[int]) -> Interactions:
        return Interactions(
            np.array(user, np.int32), np.array(item, np.int32), np.array(label, np.float32), None, np.array(times)
        )

    day = 86_400
    return SplitInteractions({
        "train": rows([3, 4, 3, 3], [3, 9, 4, 5], [1, 1, 0, 1], [10**9, 5, 10**9 + day, 10**9 + 2 * day]),
        "valid": rows([3, 3, 3, 4], [6, 7, 8, 3], [1, 1, 0, 1], [10**9] * 4),
    })  # fmt: skip


def user(splits: SplitInteractions, data: PreparedData, **config: str) -> ExampleUser:
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
    (found,) = sample_users(one, splits, IdNames(data, titles), EvaluateConfig.model_validate(config))
    return found


def test_example_user_has_history_recommendations_and_ground_truth(
    splits: SplitInteractions, make_prepared: MakePrepared
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
    unit: str, splits: SplitInteractions, make_prepared: MakePrepared
) -> None:
    data = make_prepared()
    units = {Role.TIMESTAMP: {"unit": unit}}
    columns = tuple(one.model_copy(update=units.get(one.role, {})) for one in data.schema.columns)
    data.schema.model_copy(update={"columns": columns}).write(data.folder / "schema.json")
    data = PreparedData(data.folder)
    assert data.schema.ticks == TICKS[unit]
    rows = {name: replace(part, times=part.times * TICKS[unit]) for name, part in splits.rows.items()}  # type: ignore[operator]

    found = user(SplitInteractions(rows), data)

    assert [line.note for line in found.history] == ["2001-09-11", "2001-09-10", "2001-09-09"]


def test_ground_truth_follows_the_config(splits: SplitInteractions, make_prepared: MakePrepared) -> None:
    found = user(splits, make_prepared(), relevance="all")
    assert [line.title for line in found.ground_truth] == ["title 4", "title 3", "title 5"]


def test_sample_of_users_depends_on_seed_and_raw_ids(make_prepared: MakePrepared) -> None:
    data = make_prepared()
    ranked = rankings({"model": [[3]] * 40}, [{4}] * 40, k=(1,))

    def chosen(found: Rankings, seed: int) -> list[str]:
        empty = Interactions(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float32))
        users = sample_users(found, SplitInteractions({"train": empty}), IdNames(data), EvaluateConfig(seed=seed))
        return [user.name for user in users]

    first = chosen(ranked, 0)
    assert len(set(first)) == 5
    assert chosen(ranked, 0) == first
    assert chosen(ranked, 1) != first
    fewer = replace(ranked, user_hashes=ranked.user_hashes[::-1].copy())
    assert chosen(fewer, 0) == [str(39 - int(name)) for name in first]


def test_without_rankings_nothing_is_shown(make_prepared: MakePrepared) -> None:
    data = make_prepared()
    assert RankingSection.of(rankings({}, []), data, IdNames(data), EvaluateConfig()) is None
