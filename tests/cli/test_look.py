"""--plan as tables and as JSON, without a run."""

from pathlib import Path


def test_plan_shows_tables_and_free_memory(recsys, prepared):
    before = Path("workspace/current.yaml").read_text()
    answer = recsys("train", "--plan", "train.device=cpu")
    assert answer.code == 0, answer.err
    for text in ("embedding table", "user_id", "optimizer state", "rows of train", "nothing was trained", "free: fits"):
        assert text in answer.out
    assert not Path("workspace/runs").exists()
    assert Path("workspace/current.yaml").read_text() == before
    found = recsys("--json", "train", "--plan", "train.device=cpu").json
    assert {table["name"] for table in found["tables"]} == {"user_id", "item_id"}


def test_a_plan_needs_prepared_data(recsys, labelled):
    answer = recsys("train", "ratings.yaml", "--plan")
    assert answer.code == 3
    assert "recsys etl" in answer.err
