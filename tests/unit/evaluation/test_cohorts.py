"""Cohorts of a world that is small enough to say who is in which."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.breakdown import CohortParts, measure_cohorts
from recsys_cli.evaluation.held_out import candidate_items, hold_out
from recsys_cli.evaluation.result import Cohort
from recsys_cli.interactions import Interactions
from recsys_cli.metrics import Ranked

CONFIG = EvaluateConfig(k=(1, 3), bootstrap=20)


def _interactions(*rows: tuple[int, int, int]) -> Interactions:
    user, item, label = (np.array(column) for column in zip(*rows, strict=True))
    return Interactions(user.astype(np.int32), item.astype(np.int32), label.astype(np.float32))


@pytest.fixture
def parts() -> CohortParts:
    """Five candidates, 3 the head and 4 to 7 the tail; users 3 to 6 have 1 to 4 rows of history, 7 has 2; id 2 is cold."""
    history = [(user, 3 + place, 1) for user in (3, 4, 5, 6) for place in range(user - 2)]
    train = _interactions(*history, (7, 7, 1), (7, 3, 1))
    rows = _interactions(
        (3, 7, 1), (3, 6, 1), (4, 7, 1), (4, 5, 0), (5, 6, 1), (6, 2, 1), (2, 3, 1), (2, 4, 0), (7, 4, 1)
    )
    candidates = candidate_items(train, num_items=10)
    assert candidates.tolist() == [3, 4, 5, 6, 7]
    held_out = hold_out(rows, train, candidates=candidates, num_items=10, config=CONFIG)
    assert held_out.user_idx.tolist() == [3, 4, 5, 6, 7]
    # Everybody is recommended 7, 6 and 4, which is a hit for some.
    places = np.tile(np.array([4, 3, 1], np.int32), (5, 1))
    hits = np.array([[1, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1]]) > 0
    scores = {"model": rows.labels.copy(), "constant": np.zeros(len(rows))}
    ranked = {"model": Ranked(hits, held_out.num_relevant, places)}
    return CohortParts(rows, train, held_out, scores, ranked)


@pytest.fixture
def found(parts: CohortParts) -> dict[str, Cohort]:
    return {cohort.name: cohort for cohort in measure_cohorts(parts, CONFIG)}


def test_cohorts_count_their_rows_and_users(found) -> None:
    assert {name: (cohort.rows, cohort.users) for name, cohort in found.items()} == {
        "warm users": (7, 5),
        "cold users": (2, 0),
        "head items": (1, 0),
        "tail items": (7, 4),
        "cold items": (1, 0),
        "least active users": (5, 3),  # a quarter ends at 2 rows, and so does the next: ties stay together
        "more active users": (1, 1),
        "most active users": (1, 1),
    }


def test_cohort_of_users_has_their_rankings(found) -> None:
    assert found["least active users"].ranking["model"]["recall@1"].value == pytest.approx((1 / 2 + 1 + 0) / 3)
    assert found["most active users"].ranking["model"]["hr@1"].value == 0
    assert found["warm users"].ranking["model"]["hr@1"].value == pytest.approx(2 / 5)


def test_cohort_of_items_is_about_finding_those_items(found) -> None:
    tail = found["tail items"].ranking["model"]["hr@1"]  # of users 3, 4, 5 and 7; user 6 has none to find

    assert tail.value == pytest.approx(2 / 4)
    assert 0 <= tail.low <= tail.value <= tail.high <= 1
    assert found["cold items"].ranking == {}


def test_cohort_has_the_auc_of_its_rows(found) -> None:
    assert found["cold users"].pointwise["model"]["auc"].value == 1
    assert found["cold users"].pointwise["constant"]["auc"].value == 0.5
    assert found["head items"].pointwise["model"]["auc"].value is None  # one row


def test_cold_start_users_with_distinct_ids_form_the_cold_cohort(parts) -> None:
    found = {cohort.name: cohort for cohort in measure_cohorts(replace(parts, first_new=6), CONFIG)}  # 6 and 7

    assert {name: (found[name].rows, found[name].users) for name in ("warm users", "cold users")} == {
        "warm users": (5, 3),
        "cold users": (4, 2),
    }
    assert found["cold users"].ranking["model"]["hr@1"].value == 0
    assert found["warm users"].ranking["model"]["hr@1"].value == pytest.approx(2 / 3)
    assert sum(cohort.users for name, cohort in found.items() if "active" in name) == 3  # of users that train knows
