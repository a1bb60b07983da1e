"""--plan and --profile as tables and as JSON, without a run."""

from pathlib import Path


def test_plan_shows_tables_and_free_memory(recsys, prepared):
    before = Path("workspace/current.yaml").read_text()
    answer = recsys("train", "--plan", "train.device=cpu")
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
    found = recsys("--json", "train", "--plan", "train.device=cpu").json
    assert {table["name"] for table in found["tables"]} == {"user_id", "item_id"}


def test_a_profile_shows_operations_and_where_the_trace_is(recsys, prepared):
    answer = recsys("train", "--profile", "train.device=cpu", "train.batch_size=100")
    assert answer.code == 0, answer.err
    for text in ("recsys: forward", "operation", "no run is kept", ".trace.json.gz"):
        assert text in answer.out
    assert len(list(Path("workspace/profiles").iterdir())) == 1
    assert not Path("workspace/runs").exists()


def test_one_of_them_at_a_time(recsys, prepared):
    answer = recsys("train", "--plan", "--profile")
    assert answer.code == 2
    assert "--plan and --profile exclude each other" in answer.err


def test_a_plan_needs_prepared_data(recsys, labelled):
    answer = recsys("train", "ratings.yaml", "--plan")
    assert answer.code == 3
    assert "recsys etl" in answer.err
