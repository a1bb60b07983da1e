"""--plan and --profile as tables and as JSON, without a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Recsys


@pytest.fixture
def prepared(recsys: Recsys, ratings: Path) -> Recsys:
    """A workspace with prepared data."""
    assert recsys("init", ratings, "--task", "label").code == 0
    done = recsys("etl", "ratings.yaml")
    assert done.code == 0, done.err
    return recsys


def test_plan_shows_tables_and_free_memory(prepared: Recsys) -> None:
    before = Path("workspace/current.yaml").read_text()
    answer = prepared("train", "--plan", "train.device=cpu")
    assert answer.code == 0, answer.err
    for text in (
        "embedding table",
        "user_id",
        "optimizer state",
        "activations of a batch",
        "nothing was trained",
        "free: fits",
    ):
        assert text in answer.out
    assert not Path("workspace/runs").exists()
    assert Path("workspace/current.yaml").read_text() == before
    found = prepared("--json", "train", "--plan", "train.device=cpu").json
    assert {table["name"] for table in found["tables"]} == {"user_id", "item_id"}


def test_a_profile_shows_operations_and_where_the_trace_is(prepared: Recsys) -> None:
    answer = prepared("train", "--profile", "train.device=cpu", "train.batch_size=100")
    assert answer.code == 0, answer.err
    for text in ("recsys: forward", "operation", "no run is kept", ".trace.json.gz"):
        assert text in answer.out
    assert len(list(Path("workspace/profiles").iterdir())) == 1
    assert not Path("workspace/runs").exists()


def test_one_of_them_at_a_time(prepared: Recsys) -> None:
    answer = prepared("train", "--plan", "--profile")
    assert answer.code == 2
    assert "--plan and --profile exclude each other" in answer.err


def test_a_plan_needs_prepared_data(recsys: Recsys, ratings: Path) -> None:
    recsys("init", ratings, "--task", "label")
    answer = recsys("train", "ratings.yaml", "--plan")
    assert answer.code == 3
    assert "recsys etl" in answer.err
