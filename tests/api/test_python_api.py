"""The Python API beyond its page: the same rankings and scores as an evaluation, frames of three libraries, progress."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import recsys_cli as recsys
from recsys_cli.api.progress import NotebookBars
from recsys_cli.config import load
from recsys_cli.config.starting import starting_sections
from recsys_cli.evaluation.names import IdNames
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.evaluation.result import MODEL
from recsys_cli.features.schema import FIRST, Role
from tests.api.test_python_docs import ratings

COLUMNS = {"user": "userId", "item": "movieId", "rating": "rating", "timestamp": "timestamp"}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> recsys.Workspace:
    return recsys.Workspace(str(tmp_path_factory.mktemp("api") / "workspace"))


def trained(workspace: recsys.Workspace, model: str, **sections: Any) -> recsys.TrainedRun:
    config = recsys.config_from_frame(ratings(), workspace, **COLUMNS, model=model, **sections)
    if model == "mlp":  # with a joined table that has items without interactions
        movies = pl.DataFrame({"movieId": range(1, 46), "genre": ["comedy", "drama", "war"] * 15})
        values = config.model_dump()
        join, ids = (
            {"op": "JoinExternal", "table": "movies", "on": "movieId", "columns": ["genre"]},
            ["userId", "movieId", "genre"],
        )
        values["dataset"] = recsys.dataset_from_frames(workspace, ratings(), movies=movies)
        values["features"]["ops"] = [join, {"op": "Categorify", "columns": ids}, *values["features"]["ops"][1:]]
        config = recsys.load_config(values)
    recsys.etl(config, workspace, progress=False)
    return recsys.train(config, workspace, progress=False)


@pytest.fixture(scope="module", params=["ease", "mlp", "popularity"])
def run(request: pytest.FixtureRequest, workspace: recsys.Workspace) -> recsys.TrainedRun:
    found = trained(workspace, request.param, train={"epochs": 1, "batch_size": 256, "device": "cpu"})
    recsys.evaluate(found, progress=False)
    return found


def test_recommendations_are_the_rankings_of_the_evaluation(run: recsys.TrainedRun) -> None:
    rankings, names = Rankings.read(run.rankings), IdNames(recsys.Workspace(run.folder.parents[1]).data_of(run))
    known = rankings.users >= FIRST
    users = names.decode(Role.USER, rankings.users[known].astype(np.int64)).to_pylist()
    shuffled = users[::-1]
    frame = run.recommend([*map(str, shuffled), f"{shuffled[0]}.0"], k=10).to_frame()
    assert frame.equals(run.recommend(shuffled, k=10).to_frame())
    assert frame["user"].unique(maintain_order=True).to_list() == shuffled
    for user, items in zip(users, rankings.items[MODEL][known][:, :10], strict=True):
        wanted = names.decode(Role.ITEM, items[items >= FIRST].astype(np.int64)).to_pylist()
        got = frame.filter(pl.col("user") == user)
        assert got["item"].to_list() == wanted
        assert got["rank"].to_list() == list(range(1, len(wanted) + 1))
        assert got["score"].is_sorted(descending=True)


def test_scores_are_those_of_the_evaluation(run: recsys.TrainedRun) -> None:
    test = ratings().sort("timestamp").tail(180)
    rankings, names = Rankings.read(run.rankings), IdNames(recsys.Workspace(run.folder.parents[1]).data_of(run))
    pairs = [names.decode(role, ids.astype(np.int64)).to_pylist()
             for role, ids in ((Role.USER, rankings.row_users), (Role.ITEM, rankings.row_items))]  # fmt: skip
    wanted = dict(zip(zip(*pairs, strict=True), rankings.logits, strict=True))
    rows = test.drop("rating", "timestamp")
    found = run.score(rows)
    np.testing.assert_allclose(found, [wanted[pair] for pair in rows.iter_rows()], rtol=1e-5, atol=1e-6)


def test_seen_items_are_filtered_and_users_are_unique(run: recsys.TrainedRun) -> None:
    train = {(row["userId"], row["movieId"]) for row in ratings().sort("timestamp").head(1_440).iter_rows(named=True)}
    frame = run.recommend(np.array([7, 3, 7]), k=100).to_frame()
    assert not train & set(frame.select("user", "item").iter_rows())
    assert frame["user"].unique(maintain_order=True).to_list() == [7, 3]
    assert len(run.recommend([])) == 0
    assert set(run.recommend(k=1).to_frame()["user"]) == set(range(1, 61))


@pytest.mark.parametrize(
    ("users", "k", "message"), [([1], 0, "k is 0"), ([1], -1, "k is -1"), ("u-1", 3, "single text")]
)
def test_wrong_arguments_of_recommend_are_named(run: recsys.TrainedRun, users: Any, k: int, message: str) -> None:
    with pytest.raises(recsys.RecsysError, match=message):
        run.recommend(users, k=k)


def test_unknown_user_is_named_in_the_error(run: recsys.TrainedRun) -> None:
    with pytest.raises(recsys.RecsysError, match="1 of 2 users: 999"):
        run.recommend([1, 999])
    with pytest.raises(recsys.RecsysError, match="1 of 2 users: nobody"):
        run.recommend(["nobody", " 1"])
    with pytest.raises(recsys.RecsysError, match="mix types"):
        run.recommend([1, "one"])


def test_a_run_is_found_by_its_name(run: recsys.TrainedRun) -> None:
    workspace = recsys.Workspace(run.folder.parents[1])
    assert workspace.run(run.folder.name) == run
    with pytest.raises(recsys.RecsysError, match="at least two different runs"):
        recsys.compare([run])


def test_frames_of_all_libraries_are_the_same_dataset(workspace: recsys.Workspace) -> None:
    frame = ratings().with_columns(kind=pl.lit("a").cast(pl.Categorical))
    same = [
        frame,
        frame.to_pandas(),
        frame.to_arrow(),
        frame.to_arrow().to_batches()[0],
        frame.to_dict(as_series=False),
    ]
    assert len({json.dumps(recsys.dataset_from_frames(workspace, one)) for one in same}) == 1
    lists = pa.LargeListArray.from_arrays([0, 2, 4, 6], [1, 2, 3, 4, 5, 6], mask=pa.array([False, True, False]))
    hidden = recsys.dataset_from_frames(workspace, pl.DataFrame({"user": [1, 2, 3], "tags": pl.from_arrow(lists)}))
    assert pl.read_parquet(hidden["interactions"])["tags"].to_list() == [[1, 2], None, [5, 6]]
    other = recsys.dataset_from_frames(workspace, frame.head(10))
    assert other != recsys.dataset_from_frames(workspace, frame)
    with pytest.raises(recsys.RecsysError, match="cannot read a int"):
        recsys.dataset_from_frames(workspace, 3)
    with pytest.raises(recsys.RecsysError, match="cannot read a DataFrame"):
        recsys.dataset_from_frames(workspace, pd.DataFrame({"user": [1, "a"]}))


def test_results_are_in_the_given_library(run: recsys.TrainedRun) -> None:
    best = run.recommend([1], k=2)
    assert isinstance(best.to_frame("pandas"), pd.DataFrame)
    assert isinstance(best.to_frame("arrow"), pa.Table)
    assert "score" in repr(best)
    shown = recsys.Recommendations(best.table.set_column(0, "user", pa.array(["<script>"] * len(best))))._repr_html_()
    assert "<table" in shown
    assert "&lt;script&gt;" in shown
    assert "<script>" not in shown
    with pytest.raises(recsys.RecsysError, match="unknown dataframe library 'numpy'"):
        best.to_frame("numpy")  # type: ignore[arg-type]


def test_interactions_without_a_label_are_all_positive(tmp_path: Path) -> None:
    place = recsys.Workspace(tmp_path)
    config = recsys.config_from_frame(ratings().drop("rating"), place, user="userId", item="movieId")
    recsys.etl(config, place, progress=False)
    run = recsys.train(config, place, progress=False)
    assert recsys.evaluate(run, progress=False).metrics["ndcg@10"].value is not None


@pytest.mark.parametrize(
    "columns", [COLUMNS, {"user": "u", "item": "i", "label": "l"}, {**COLUMNS, "rating": "the rating"}]
)
def test_sections_are_those_of_init(tmp_path: Path, columns: dict[str, str], monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [
        {"user": user, "item": item, "rating": user * item % 5 + 1, "label": user * item % 2, "timestamp": 10**9 + item}
        for user in range(1, 9)
        for item in range(1, 11)
    ]
    lines = [columns.values(), *([row[part] for part in columns] for row in rows)]
    Path("t.csv").write_text("".join(",".join(map(str, line)) + "\n" for line in lines))
    line = [word for part, column in columns.items() for word in (f"--{part}", column)]
    subprocess.run([sys.executable, "-m", "recsys_cli", "--quiet", "init", "t.csv", *line], check=True)
    written = load(Path("t.yaml"))
    ours = recsys.load_config({"dataset": {"name": "files", "interactions": "t.csv"}, **starting_sections(**columns)})
    assert (ours.split, ours.features) == (written.split, written.features)


@pytest.mark.parametrize(
    ("given", "model", "filters"),
    [
        ({"label": "l"}, "auto", 1), ({"rating": "l"}, "auto", 0), ({"label": "l", "task": "label"}, "mlp", 0),
        ({"rating": "l", "task": "label"}, "mlp", 0), ({"label": "l", "model": "fm"}, "fm", 0),
        ({"label": "l", "model": "sasrec", "timestamp": "t"}, "sasrec", 1),
    ],
)  # fmt: skip
def test_labels_are_ranked_unless_they_are_predicted(
    tmp_path: Path, given: dict[str, Any], model: str, filters: int
) -> None:
    frame = pl.DataFrame({"u": range(9), "i": range(9), "l": [row % 2 for row in range(9)], "t": range(9)})
    config = recsys.config_from_frame(frame, recsys.Workspace(tmp_path), user="u", item="i", **given)
    assert config.model.name == model
    assert [op.name for op in config.features.ops].count("Filter") == filters


def test_a_frame_without_label_has_none_to_predict(tmp_path: Path) -> None:
    with pytest.raises(recsys.RecsysError, match="predicts a label or a rating"):
        recsys.config_from_frame(ratings(), recsys.Workspace(tmp_path), user="userId", item="movieId", task="label")


def test_mapping_is_validated_like_a_file_and_unchanged(tmp_path: Path) -> None:
    values = {"dataset": {"name": "synthetic-small"}, **starting_sections(**COLUMNS), "model": {"name": "ease"}}
    before = json.dumps(values)
    config = recsys.load_config(values, ["model.regularization=7"])
    assert config.model.options["regularization"] == 7
    assert json.dumps(values) == before
    (tmp_path / "config.yaml").write_text(before)
    assert recsys.load_config(str(tmp_path / "config.yaml"), ["model.regularization=7"]) == config
    with pytest.raises(recsys.RecsysError, match="trian"):
        recsys.load_config({**values, "trian": {}})


def test_finished_run_with_another_evaluate_section_is_a_message(workspace: recsys.Workspace) -> None:
    run = trained(workspace, "popularity")
    config = recsys.config_from_frame(ratings(), workspace, **COLUMNS, model="popularity", evaluate={"k": (3,)})
    said: list[Any] = []
    again = recsys.train(config, workspace, progress=said.append)
    assert again.folder == run.folder
    assert ["evaluate(run, config=config.evaluate)" in getattr(event, "text", "") for event in said].count(True) == 1
    assert "ndcg@3" in recsys.evaluate(again, config=config.evaluate, progress=False).ranking["model"]


def test_progress_goes_to_a_function(workspace: recsys.Workspace, capfd: pytest.CaptureFixture[str]) -> None:
    config = recsys.config_from_frame(ratings(), workspace, **COLUMNS, model="ease")
    heard: list[object] = []
    recsys.etl(config, workspace, force=True, progress=heard.append)
    recsys.etl(config, workspace, force=True, progress=False)
    assert any(isinstance(event, recsys.Progress) for event in heard)
    assert capfd.readouterr() == ("", "")


def test_events_come_in_order_and_then_the_result(workspace: recsys.Workspace) -> None:
    config = recsys.config_from_frame(ratings(), workspace, **COLUMNS, model="ease")
    recsys.etl(config, workspace, progress=False)
    training = recsys.Events(recsys.train, config, workspace, force=True)
    done = [event.done for event in training if isinstance(event, recsys.Progress) and event.task.startswith("fit")]
    assert done == sorted(done)
    assert isinstance(training.result, recsys.TrainedRun)
    with pytest.raises(recsys.RecsysError, match="is missing"):
        list(
            recsys.Events(
                recsys.etl, recsys.load_config({**config.model_dump(), "dataset": {"name": "movielens-1m"}}), workspace
            )
        )


def test_leaving_the_loop_interrupts_the_stage() -> None:
    steps: list[int] = []

    def stage(*, progress: Any) -> None:
        for step in range(1_000_000):
            steps.append(step)
            progress(recsys.Progress("work", step, None))

    for _ in recsys.Events(stage):
        break
    assert len(steps) < 1_000_000
    assert not [thread for thread in threading.enumerate() if thread.name == "recsys-events"]


def test_notebook_bar_disappears(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shown: list[str] = []

    class Handle:
        def update(self, html: str) -> None:
            shown.append(html)

    fake = ModuleType("IPython.display")
    vars(fake).update(HTML=str, display=lambda html, display_id: Handle())
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", fake)
    draw = NotebookBars()
    draw(recsys.Progress("train <1>", 1, 4))
    draw(recsys.Progress("train <1>", 4, 4))
    draw(recsys.Message("odd", "warning"))
    assert shown[0].startswith('<progress value="1" max="4"></progress> train &lt;1&gt;: ')
    assert shown[-1] == ""
    assert capsys.readouterr().out == "warning: odd\n"


def test_importing_costs_nothing_and_configs_need_no_torch() -> None:
    program = """
import json, sys
import recsys_cli as recsys
first = set(sys.modules)
recsys.load_config, recsys.Workspace, recsys.train
json.dump([sorted(name for name in found if name in {"torch", "polars", "pandas", "numpy", "pydantic", "rich", "yaml"})
           for found in (first, set(sys.modules))], sys.stdout)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    first, then = json.loads(done.stdout)
    assert first == []
    assert not {"torch", "polars", "pandas", "rich"} & set(then)


def test_the_package_etl_is_the_function_too() -> None:
    program = "import recsys_cli.etl.prepare, recsys_cli as recsys; recsys.etl(None, None)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "config has to be RunConfig, not NoneType" in done.stderr
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = recsys.nothing
