"""What is known of the items that lists show."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.breakdown import catalog_of, measure_lists
from recsys_cli.evaluation.held_out import HeldOut, Lists
from recsys_cli.loader import DimensionTables
from recsys_cli.loader.interactions import read_interactions
from recsys_cli.metrics import BEYOND, Catalog, Ranked, Recommended
from recsys_cli.metrics.lists import diversity


def test_a_feature_that_an_item_has_twice_is_one_feature(make_prepared) -> None:
    """Two items with a genre of their own share nothing, whether or not one of them is listed with its genre twice."""
    data = make_prepared(items=4)
    genres = [[]] * 3 + [[3], [4, 4], [4, 3, 3], [3]]
    pq.write_table(pa.table({"genres": pa.array(genres, pa.list_(pa.int32()))}), data.table("movieId"))
    candidates = np.array([3, 4, 5, 6])

    catalog = catalog_of(candidates, read_interactions(data, "train"), DimensionTables(data), data.schema)

    assert np.diff(catalog.offsets).tolist() == [1, 1, 2, 1]
    lists = np.array([[0, 1], [0, 3], [1, 2]], dtype=np.int32)
    shown = Recommended(np.zeros((3, 2), bool), np.ones(3, np.int64), lists, lists.astype(np.int64), catalog)
    assert diversity(shown, 2).round(6).tolist() == [1.0, 0.0, round(1 - 1 / 2**0.5, 6)]


def test_interval_of_a_metric_in_0_to_1_stays_in_it() -> None:
    """A resample without the only user with a hit has a PSNDCG below 0, as values are linear around the ratio."""
    users, each = 20, np.arange(21)
    seen = Lists(np.empty(0, np.int64), np.zeros(users + 1, np.int64))
    relevant = np.minimum(each[:-1], 1)  # the popular item is relevant to the first user, the other one to the others
    ones = np.ones(users, np.int64)
    problem = HeldOut(each[:-1], np.array([3, 4]), seen, Lists(relevant, each), ones, users, 0)
    found = each[:-1, None] == 0
    lists = np.zeros((users, 1), np.int32)
    catalog = Catalog(np.array([10_000, 1]), 10_001, np.empty(0, np.int64), np.zeros(3, np.int64))
    ranked = Ranked(found, ones, lists)

    estimates = measure_lists(ranked, problem, catalog, EvaluateConfig(k=[1], bootstrap=200))

    psndcg = estimates["psndcg@1"]
    own = BEYOND["psndcg"].compute(
        Recommended(found, ones, lists, lists.astype(np.int64), catalog, relevant=relevant, relevant_offsets=each), 1
    )
    assert own[1:].max() < 0
    assert psndcg.value == pytest.approx(0.01 / (users - 1 + 0.01))
    assert psndcg.low == 0
    assert psndcg.value < psndcg.high < 0.01
    assert (estimates["arp@1"].low, estimates["arp@1"].high) == (10_000, 10_000)
    assert (estimates["serendipity@1"].low, estimates["serendipity@1"].high) == (0, pytest.approx(1 - 0.025**0.05))


@pytest.mark.parametrize("hits", [0, 1])
def test_equal_users_leave_room_in_the_interval_of_psndcg(hits: int) -> None:
    users = 40
    each, ones = np.arange(users + 1), np.ones(users, np.int64)
    problem = HeldOut(each[:-1], np.array([3]), Lists(each[:0], 0 * each), Lists(0 * each[:-1], each), ones, users, 0)
    catalog = Catalog(np.array([7]), 7, each[:0], np.zeros(2, np.int64))
    ranked = Ranked(np.full((users, 1), hits == 1), ones, np.full((users, 1), hits - 1, np.int32))

    psndcg = measure_lists(ranked, problem, catalog, EvaluateConfig(k=[1], bootstrap=20))["psndcg@1"]

    reach = 0.025 ** (1 / users)
    assert (psndcg.value, psndcg.low, psndcg.high) == pytest.approx((1, reach, 1) if hits else (0, 0, 1 - reach))
