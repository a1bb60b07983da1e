"""Features of a request: context columns, and users whom train does not know but the user table does."""

from __future__ import annotations

from pathlib import Path

import pytest

import recsys_cli as recsys
from recsys_cli.errors import ConfigError
from recsys_cli.serving.bundle import load_bundle
from recsys_cli.serving.query import Query
from recsys_cli.serving.recommender import Recommender
from tests.served_runs import contextual_run


@pytest.fixture(scope="module")
def recommender(served_workspace: recsys.Workspace, tmp_path_factory: pytest.TempPathFactory) -> Recommender:
    folder: Path = tmp_path_factory.mktemp("contextual") / "bundle"
    return load_bundle(recsys.export(contextual_run(served_workspace), folder, progress=False))


@pytest.mark.parametrize("user", [3, 65, "nobody"], ids=["trained", "in the user table", "unknown"])
def test_scores_with_features_are_those_of_the_rows(user: object, recommender: Recommender) -> None:
    (answer,) = recommender.recommend([Query(user=user, k=40, features={"device": "tv"}, exclude_seen=False)])
    items = [one.item.id for one in answer.items]
    rows = {
        "userId": [user if isinstance(user, int) else 10_000] * len(items),
        "movieId": items,
        "device": ["tv"] * len(items),
    }
    assert answer.source == "model"
    assert [one.score for one in answer.items] == pytest.approx(recommender.score(rows).tolist(), abs=1e-5)


def test_features_change_the_answer_and_filters_hold(recommender: Recommender) -> None:
    one, other, few = recommender.recommend([
        Query(user=3, k=5, features={"device": "tv"}), Query(user=3, k=5, features={"device": "phone"}),
        Query(user=3, k=5, features={"device": None}, candidates=[1, 2, 3], exclude_seen=False),
    ])  # fmt: skip
    assert [item.score for item in one.items] != [item.score for item in other.items]
    assert {item.item.id for item in few.items} == {1, 2, 3}


def test_without_features_the_fallback_says_what_is_missing(recommender: Recommender) -> None:
    (answer,) = recommender.recommend([Query(user=3)])
    assert answer.source == "popularity"
    assert "device" in str(answer.note)
    with pytest.raises(ConfigError, match="unknown feature colour"):
        recommender.recommend([Query(user=3, features={"device": "tv", "colour": "red"})])
