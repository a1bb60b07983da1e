"""`recsys bench` and `recsys compare` from the line to the tables, the pages and the paper."""

import shutil
from pathlib import Path

import pytest

from recsys_cli.workspace import TrainedRun
from tests.cli.conftest import copied, type_in

BENCH = "bench={models: [popularity, {name: ease, positive_only: true}], seeds: [1, 2]}"
SHORT = (
    "evaluate.bootstrap=50",
    "evaluate.k=[5]",
    "bench.metrics=[ndcg@5, auc]",
)


@pytest.fixture(scope="module")
def made(stations, tmp_path_factory):
    folder = copied(stations["labelled"], tmp_path_factory.mktemp("benched"))
    type_in(folder, ["bench", "ratings.yaml", BENCH, *SHORT])  # prepares the data
    return folder


@pytest.fixture
def benched(recsys, made, tmp_path):
    """A workspace with two evaluated runs, and a line to type."""
    copied(made, tmp_path)
    return recsys


def test_from_the_bench_to_the_comparison(benched):
    again = benched("bench", "--html", "board.html", "--metric", "auc")
    assert again.code == 0, again.err
    assert "2 of 2: ease" in again.err
    rows = [line.split() for line in again.out.splitlines()]
    assert rows[1][:3] == ["model", "AUC", "NDCG@5"]
    assert [row[1] for row in rows if len(row) > 4 and row[0].rstrip("=") in {"1", "2", "3"}].count("ease") == 1
    assert "by AUC" in again.out
    assert "<svg" in Path("board.html").read_text()
    board = benched("bench", "--json").json
    assert board["metric"] == "ndcg@5"
    assert {one["label"]: len(one["runs"]) for one in board["standings"] if one["runs"]} == {"ease": 1, "popularity": 1}
    Path("again.yaml").write_text(benched("config").out)
    assert benched("-q", "bench", "again.yaml").code == 0
    assert len(list(Path("workspace/runs").iterdir())) == 2  # nothing was trained twice

    runs = {one["label"]: one["runs"] for one in board["standings"]}
    names = (runs["popularity"][0], runs["ease"][0])
    table = benched("compare", *names, "--html", "page.html")
    assert table.code == 0, table.err
    assert "ease against popularity" in table.out
    assert any(line.split()[:1] == ["NDCG@5"] for line in table.out.splitlines())
    assert "AUC" in table.out
    assert "page: page.html" in table.out
    assert "<svg" in Path("page.html").read_text()
    found = benched("compare", names[1], "--against", names[0], "--json").json
    assert found["against"] == "popularity"
    assert found["figures"][0]["differences"]["ease"]["p_holm"] <= 1


def test_a_model_names_its_latest_finished_run(benched):
    models = {name.split("-")[1]: name for name in (run["name"] for run in benched("status", "--json").json["runs"])}
    line = ("train", "ratings.yaml", "bench=null", "model={name: ease, regularization: 7.0}", *SHORT[:2])
    assert benched(*line).code == 0
    (added,) = {run["name"] for run in benched("status", "--json").json["runs"]} - {*models.values()}
    assert benched("evaluate", "ease", "--json").json["run"] == added
    assert benched("report", "ease", "--json").json["run"] == added
    (Path("workspace/runs") / added / "manifest.json").unlink()  # as of a run that is still trained
    assert benched("evaluate", "ease", "--json").json["run"] == models["ease"]
    assert benched("compare", "popularity", "ease", "--json").code == 0


def test_the_default_run_is_the_best_of_the_current_data_on_valid(benched):
    worst = ("train", "ratings.yaml", "bench=null", "model={name: popularity, half_life: 1.0}", *SHORT[:2])
    assert benched(*worst).code == 0
    runs = [TrainedRun(folder) for folder in sorted(Path("workspace/runs").iterdir())]
    on_valid = {run.folder.name: run.manifest["valid"]["ndcg@10"] for run in runs}
    best = max(on_valid, key=lambda name: on_valid[name])
    for run in runs:
        run.evaluation.unlink(missing_ok=True)  # figures of test have no say
    shown = benched("inspect", "user", "u1", "--json")
    assert shown.json["run"] == best
    assert f"run {best}: ndcg@10 of {on_valid[best]:.4f} on valid, the best of 3" in shown.err
    assert f"run {best}:" in benched("recommend", "--user", "u1").err
    assert f"run {best}:" in benched("export").err
    Path("ratings.csv").rename("elsewhere.csv")  # as on another machine
    assert f"run {best}:" in benched("recommend", "--user", "u1").err
    assert "recsys validate workspace/current.yaml" in benched("status").out


def test_runs_of_other_prepared_data_are_not_hidden(benched):
    first = benched("status", "--json").json
    assert "data" not in benched("status").out.partition("runs")[2].split()[:4]
    assert benched("etl", "ratings.yaml", "etl.seed=7", "bench=null", *SHORT[:2]).code == 0
    key, name = first["data"][0]["key"], first["runs"][-1]["name"]
    error = benched("recommend", "--user", "u1").err
    assert f"data {key} has 2, the latest {name}" in error
    assert "recsys recommend RUN" in error
    status = benched("status")
    assert status.out.count(key) == 3  # the data and its two runs
    assert "the current config has no run on its data" in status.out
    assert benched("recommend", name, "--user", "u1").code == 0


def test_data_prepared_again_has_the_same_held_out_rows(benched):
    """Another order of train is other data with the same users, things to find and rows."""
    first = next(run for run in benched("status", "--json").json["runs"] if "ease" in run["name"])
    line = ("etl.seed=7", "model={name: popularity}", "bench=null")
    assert benched("etl", "ratings.yaml", *line, *SHORT[:2]).code == 0
    assert benched("train").code == 0
    name = benched("evaluate", "--json").json["run"]
    found = benched("compare", first["name"], name, "--json").json
    assert found["runs"][0]["data"] != found["runs"][1]["data"]
    assert {figure["unit"] for figure in found["figures"]} == {"users", "rows"}


def test_unwritable_page_is_reported_before_the_work(recsys):
    answer = recsys("bench", "--html", ".")
    assert answer.code == 2
    assert "is a directory" in answer.err


def test_config_without_a_bench_has_a_hint(recsys, labelled):
    answer = recsys("bench", "ratings.yaml")
    assert answer.code == 2
    assert "no bench section" in answer.err
    assert not Path("workspace/data").exists()
    assert "models: [popularity" in answer.err


def test_missing_run_is_reported(recsys):
    answer = recsys("compare", "one", "two")
    assert answer.code == 3
    assert "no run 'one'" in answer.err


def test_runs_of_other_data_are_said_to_be(benched):
    assert "current config" not in benched("compare", "popularity", "ease").out
    assert benched("etl", "ratings.yaml", "split.test=0.3", BENCH, *SHORT).code == 0
    compared = benched("compare", "popularity", "ease").out
    assert "Not the data of the current config" in compared
    assert compared.count("is of data") == 2
    names = [run["name"] for run in benched("status", "--json").json["runs"]]
    assert "current config" not in benched("compare", *names).out


def test_a_folder_with_files_of_another_run_is_damaged(benched):
    first, second = sorted(Path("workspace/runs").iterdir())
    for name in ("manifest.json", "checkpoints"):
        target = first / name
        shutil.rmtree(target) if target.is_dir() else target.unlink()
        copy = shutil.copytree if name == "checkpoints" else shutil.copy
        copy(second / name, target)
    for line in (["recommend", "--user", "u1"], ["export"], ["compare", second.name]):
        answer = benched(*line, first.name)
        assert answer.code == 4, (line, answer.out, answer.err)
        assert f"{first / 'config.yaml'}" in answer.err
