"""`recsys auto` on tables whose best model is known, cut short, continued, and asked for more."""

import shutil
import subprocess
import sys
import time

import numpy as np
import polars as pl
import pytest

from recsys_cli.config import load
from recsys_cli.errors import TrainingError
from recsys_cli.evaluation.compare.comparison import Difference
from recsys_cli.evaluation.compare.leaderboard import LeaderboardRow, SeededScore
from recsys_cli.events import Message, ignore
from recsys_cli.stages.entrants import end_early
from recsys_cli.stages.etl import etl, warn_of
from recsys_cli.stages.race import _Race, race
from recsys_cli.stages.race_result import RaceOptions
from recsys_cli.stages.timed import Clock
from recsys_cli.stages.train import train_on
from recsys_cli.stages.winner import suspicion, verdict_on
from recsys_cli.training.checkpoint import Checkpoint
from recsys_cli.workspace import Workspace
from tests.cli.conftest import recsys  # noqa: F401 - a fixture
from tests.event_configs import config_text

pytestmark = pytest.mark.usefixtures("recsys")


def halves(path, users=120, times=True):
    """Users of two halves, each with its own 20 items, in a random order: co-occurrence tells what popularity cannot."""
    draw = np.random.default_rng(7)
    rows = pl.DataFrame({
        "user": np.repeat(np.arange(users), 12),
        "item": np.concatenate([draw.choice(20, 12, replace=False) + 20 * (user % 2) for user in range(users)]),
        "time": 1_600_000_000 + draw.permutation(12 * users) * 60,
    })  # fmt: skip
    (rows if times else rows.drop("time")).write_csv(path)


def written(table, model, *, time="null"):
    """Write a config for a table, with the model and further sections."""
    path = table.with_suffix(".yaml")
    path.write_text(config_text(table, time=time, more=f"model: {model}\n"))
    return path


@pytest.fixture
def table(tmp_path):
    halves(tmp_path / "visits.csv")
    return tmp_path / "visits.csv"


def test_a_race_ends_with_a_served_model_and_its_reasons(table, recsys):  # noqa: F811
    found = recsys("--json", "auto", table, "--minutes", "1").json
    of_models = {one["label"]: one for one in found["entrants"]}
    assert of_models[found["winner"]]["value"] == max(one["value"] or 0 for one in of_models.values())
    assert found["winner"] != "popularity"
    assert {"popularity", "ease", "item-knn", "ials", "sasrec"} <= set(of_models)
    board = {row["label"]: row["scores"]["ndcg@10"]["value"] for row in found["board"]}
    assert board[found["winner"]] > 1.2 * board["popularity"]
    text = table.with_name("visits.auto.yaml").read_text()
    assert all(f"# {label}: valid " in text for label in of_models)
    config = load(table.with_name("visits.auto.yaml"))
    assert (config.split.valid, config.split.test) == (0, 0)
    run = Workspace("workspace").run(found["run"])
    assert run.manifest["model"] == config.model.name
    named = recsys("--json", "recommend", found["run"], "--user", "3").json
    assert len(named["items"]) == 10
    if found["on_all_rows"]:  # there was time for it
        assert recsys("--json", "recommend", "--user", "3").json == named
        assert recsys("--json", "status").json["current"]["next"] == "recsys export"

    written = table.with_name("visits.auto.yaml")
    written.unlink()
    again = recsys("--json", "auto", table, "--minutes", "1").json
    assert (again, written.read_text()) == (found, text)
    answer = recsys("auto", table, "--minutes", "1", "--metric", "recall@10")
    assert answer.code == 2
    assert "is not of recsys auto by recall@10" in answer.err
    assert "--out visits.auto.recall@10.yaml" in answer.err
    assert written.read_text() == text

    def stop(event):
        if isinstance(event, Message):
            raise KeyboardInterrupt

    assert recsys("init", table, "--out", "visits.yaml").code == 0
    options, clock = RaceOptions(minutes=3, metric="ndcg@10"), Clock(180, start=time.monotonic())
    with pytest.raises(KeyboardInterrupt):
        race(
            load(table.with_name("visits.yaml")),
            Workspace("workspace"),
            options,
            clock=clock,
            write=written.write_text,
            emit=stop,
        )
    assert clock.before == pytest.approx(found["seconds"], abs=1)  # it went on
    assert recsys("--json", "auto", table, "--minutes", "1").json == found
    assert written.read_text() == text


def test_a_finished_race_is_read_without_torch():
    program = "import sys, recsys_cli.stages.race_result as _, recsys_cli.stages.winner as _; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_an_interrupted_training_ends_as_one_of_its_epochs(table, workspace):
    model = "{name: sasrec, embedding_dim: 8}\ntrain: {epochs: 9, trackers: []}\nsplit: {method: leave-last-out}"
    path = written(table, model, time="time")
    data = etl(load(path), workspace).artifact

    def after(event):
        if isinstance(event, Message) and event.facts.get("epoch") == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_on(data, load(path), workspace, emit=after)
    shorter = load(path, ["train.epochs=3"])
    name = end_early(data, load(path), shorter, workspace, emit=ignore)
    ended = workspace.run(name)
    assert len(ended.manifest["history"]) == 3
    assert [run.folder.name for run in workspace.runs()] == [name]
    fresh = Workspace(table.with_name("other"))
    shutil.copytree(workspace.root / "data", fresh.root / "data")
    whole = train_on(data, shorter, fresh).artifact
    assert whole.key == ended.key
    for which in ("best", "last"):
        one, other = (Checkpoint.load(run.checkpoint(which)).tensors for run in (whole, ended))
        assert one.keys() == other.keys()
        assert all(bool((one[tensor] == other[tensor]).all()) for tensor in one)


def test_labels_race_by_auc(tmp_path, recsys):  # noqa: F811
    draw = np.random.default_rng(3)
    colour, size = draw.integers(0, 6, 3_000), draw.integers(0, 5, 3_000)
    clicked = ((colour % 2) == (size % 2)) & (draw.random(3_000) < 0.9)
    pl.DataFrame({
        "colour": [f"c{one}" for one in colour], "size": [f"s{one}" for one in size],
        "shop": draw.integers(0, 9, 3_000), "click": clicked.astype(int),
    }).write_csv(tmp_path / "clicks.csv")  # fmt: skip
    found = recsys("--json", "auto", tmp_path / "clicks.csv", "--minutes", "1").json
    assert found["options"]["metric"] == "auc"
    assert {one["label"] for one in found["entrants"]} >= {"lightgbm", "fm", "dcn-v2"}
    assert max(one["value"] or 0 for one in found["entrants"]) > 0.85


def test_no_time_is_an_error_with_the_reason(table, workspace):
    path = written(table, "{name: auto}")
    options = RaceOptions(minutes=0.01, metric="ndcg@10")
    with pytest.raises(TrainingError, match="takes longer than 0"):
        race(load(path), workspace, options, clock=Clock(0.6, start=time.monotonic()), write=print, emit=ignore)


def test_a_race_without_a_target_in_valid_ends_with_its_first_model(tmp_path, workspace, recsys):  # noqa: F811
    users, number = np.tile(np.arange(40), 12), np.arange(480)
    pl.DataFrame({"user": users, "item": users % 7, "time": number, "click": number < 300}).write_csv(
        tmp_path / "same.csv"
    )
    rank = written(tmp_path / "same.csv", "{name: auto}\nsplit: {method: leave-last-out}", time="time")
    options = RaceOptions(minutes=1, metric="ndcg@10")
    said = (
        "40 rows; 40 users, 0 of them not in train; 100% positive labels; 40 rows with a pair of user and item of train"
    )
    with pytest.raises(TrainingError, match=said) as found:
        race(load(rank), workspace, options, clock=Clock(60, start=time.monotonic()), write=print, emit=ignore)
    assert "no user of valid has a target" in found.value.message
    assert found.value.hint.startswith("recsys auto CONFIG evaluate.repeats=true")
    assert len(workspace.runs()) == 1
    text = config_text(tmp_path / "same.csv", label="click", more="split: {method: temporal, valid: 0.1, test: 0.1}\n")
    rank.write_text(text)
    with pytest.raises(TrainingError, match="auc is undefined on valid: the split left 48 rows; ") as found:
        race(load(rank), workspace, options.model_copy(update={"metric": "auc"}),
             clock=Clock(60, start=time.monotonic()), write=print, emit=ignore)  # fmt: skip
    assert "0% positive labels" in found.value.message
    assert "evaluate.repeats" not in found.value.hint
    assert len(workspace.runs()) == 2
    once = tmp_path / "once.csv"
    pl.DataFrame({"user": range(200), "item": np.arange(200) % 7, "time": range(10**9, 10**9 + 200)}).write_csv(once)
    answer = recsys("auto", once)
    assert answer.code == 6
    assert "each user has one row, from which nothing personal can be learned" in answer.err
    assert f"hint: recsys init {once}, then recsys auto once.yaml split.method=random, which" in answer.err
    assert recsys("init", once).code == 0
    assert "hint: recsys auto once.yaml split.method=random, which" in recsys("auto", "once.yaml").err


def test_tables_with_open_questions_and_files_of_others_are_refused(tmp_path, recsys, table):  # noqa: F811
    pl.DataFrame({"a": [1, 2, 3] * 40, "b": [4, 5, 6] * 40}).write_csv(tmp_path / "odd.csv")
    answer = recsys("auto", tmp_path / "odd.csv")
    assert answer.code == 2
    assert f"a, b; to rank items: recsys init {tmp_path / 'odd.csv'} --user COLUMN --item COLUMN; then" in answer.err
    pl.DataFrame({"a": [0, 1] * 40, "b": np.arange(80) / 7, "c": np.arange(80) / 9}).write_csv("click2.csv")
    answer = recsys("auto", "click2.csv")
    assert "from the others: recsys init click2.csv --label a; then recsys auto click2.yaml" in answer.err
    assert "--user" not in answer.err
    (tmp_path / "visits.auto.yaml").write_text("mine: 1\n")
    answer = recsys("auto", table)
    assert answer.code == 2
    assert "is not of recsys auto" in answer.err
    answer = recsys("auto", table, "--metric", "ndgc@10", "--out", "x.yaml")
    assert answer.code == 2
    assert "ndcg" in answer.err


def row(label, value, difference=None, *, baseline=False):
    """A line of a leaderboard, best first; without a difference there was no test."""
    from_best = None
    if difference is not None:
        from_best = Difference(value=-0.1, low=-0.2, high=0.0, p=0.01, p_holm=0.01, verdict=difference)
    score = SeededScore(value=value)
    return LeaderboardRow(
        place=1, label=label, is_baseline=baseline, scores={"ndcg@10": score}, from_best=from_best, seeds=1
    )


@pytest.mark.parametrize(
    ("board", "verdict"),
    [
        ([], "sasrec is best on valid; there was no time to test it."),
        ([row("sasrec", None), row("ease", None)], "sasrec is best on valid; ndcg@10 is undefined on test."),
        (
            [row("constant", 0.5), row("sasrec", 0.4)],
            "sasrec is best on valid; on test constant is ahead; the difference is not tested.",
        ),
        (
            [row("ease", 0.5), row("sasrec", 0.4, "noise")],
            "sasrec is best on valid; on test ease is ahead, within noise.",
        ),
        (
            [row("ease", 0.5), row("sasrec", 0.4, "worse")],
            "sasrec is best on valid; on test ease is significantly better: valid and test disagree.",
        ),
        (
            [row("sasrec", 0.5), row("constant", 0.4)],
            "sasrec is best on valid and on test; its differences from constant are not tested.",
        ),
        (
            [row("sasrec", 0.5), row("ials", 0.4, "noise"), row("ease", 0.3, "noise")],
            "sasrec is best, but not measurably: nothing tried beats ease here.",
        ),
        (
            [row("sasrec", 0.5), row("ials", 0.4, "noise"), row("ease", 0.3, "worse")],
            "sasrec is best, but not measurably: ials is level within noise.",
        ),
        (
            [row("sasrec", 0.5), row("ials", 0.4, "worse"), row("ease", 0.3, "worse")],
            "sasrec is significantly better than ials, ease.",
        ),
    ],
)
def test_a_verdict_claims_what_was_tested(board, verdict):
    assert verdict_on("sasrec", board) == verdict


def test_a_simple_winner_is_not_beaten():
    board = [row("popularity", 0.5), row("ease", 0.4, "noise"), row("sasrec", 0.3, "worse")]
    assert (
        verdict_on("popularity", board)
        == "popularity is significantly better than sasrec; nothing tried beats it here."
    )
    assert verdict_on("popularity", board[:2]) == "popularity is best, not measurably; nothing tried beats it here."


def test_a_figure_too_good_to_be_true_is_suspected():
    assert "known only after the outcome" in suspicion("auc", 0.9995)
    assert not any((suspicion("auc", 0.93), suspicion("auc", None), suspicion("ndcg@10", 1.0)))


def test_entrants_rank_cold_items_as_the_config_says(table, workspace):
    path = written(table, "{name: gru4rec, cold_items: all}")
    options = RaceOptions(minutes=1, metric="ndcg@10")
    own = _Race(load(path), workspace, options, Clock(60, start=time.monotonic()), print, ignore)
    own.timed.close()
    assert own._enter("sasrec", "", {"name": "sasrec"}).model["cold_items"] == "all"
    assert "cold_items" not in own._enter("ease", "", {"name": "ease"}).model


def test_warnings_of_the_data_report_are_said(tmp_path, workspace):
    halves(tmp_path / "visits.csv")
    rows = pl.read_csv(tmp_path / "visits.csv").with_columns(
        time=1_600_000_000 + pl.int_range(pl.len()) % 12 // 4 * 86_400
    )
    rows.sort("user", "time", "item").write_csv(tmp_path / "visits.csv")
    path = written(tmp_path / "visits.csv", "{name: ease}\nsplit: {method: leave-last-out}", time="time")
    said = []
    assert warn_of(etl(load(path), workspace).artifact, said.append)
    assert {message.level for message in said} == {"warning"}
    assert any("the item id is above that of 100.0 %" in message.text for message in said)


def test_a_limit_of_latency_leaves_models_out(table, recsys):  # noqa: F811
    answer = recsys("--json", "auto", table, "--minutes", "1", "--latency", "0.1")
    assert answer.code == 6
    assert "more than 0.1" in answer.json["error"]["message"]
