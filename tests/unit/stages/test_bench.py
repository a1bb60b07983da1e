"""A bench on the checkerboard, where EASE beats popularity; interrupted, resumed, and with failures."""

import shutil
import signal
from math import comb
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from recsys_cli.config import BenchConfig, RunConfig
from recsys_cli.errors import ConfigError, TrainingError
from recsys_cli.evaluation import Evaluation
from recsys_cli.evaluation.compare.leaderboard import failures_in_words, in_words
from recsys_cli.evaluation.compare.pages import leaderboard_page
from recsys_cli.events import Event, Message, Progress
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.stages.bench import bench_on, cells_of
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace, write_manifest
from tests.browser import see
from tests.checkerboard import put_prepared
from tests.ranks import stopped_in

GOOD = {"name": "ease", "positive_only": True}
STEPS = {"name": "mlp", "embedding_dim": 4, "hidden_dims": [8]}


SHORT = {**STEPS, "train": {"epochs": 1}}


@pytest.fixture
def data(workspace):
    return put_prepared(workspace, users=150, items=40, rows=3_000)


def a_config(data: PreparedData, *models: Any, seeds: tuple[int, ...] = (1,), **bench: Any) -> RunConfig:
    return RunConfig.model_validate({
        "dataset": {"name": "movielens-latest-small"},
        "features": FittedPlan.read(data.folder).plan,
        "train": {"epochs": 4, "batch_size": 300, "learning_rate": 0.02, "device": "cpu", "precision": "fp32"},
        "evaluate": {"k": [5], "bootstrap": 50},
        "bench": {"models": models, "seeds": seeds, "metrics": ["ndcg@5", "auc"], **bench},
    })  # fmt: skip


def said(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, Message)]


def figures(run: TrainedRun, metric: str) -> float | None:
    found = Evaluation.read(run.evaluation)
    return {**found.pointwise["model"], **found.ranking["model"]}[metric].value


def test_models_are_ranked_over_their_seeds(data, workspace, tmp_path):
    events: list[Event] = []
    config = a_config(data, "popularity", SHORT, GOOD, seeds=(1, 2))
    found = bench_on(data, config, workspace, html=tmp_path / "x.html", emit=events.append)
    standings = {one.label: one for one in found.standings}
    best, popularity, mlp = (standings[label] for label in ("ease", "popularity", "mlp"))
    assert best.place == 1
    assert [one.place for one in found.standings] == list(range(1, len(found.standings) + 1))
    assert (found.metric, found.metrics, found.seeds, found.failures) == ("ndcg@5", ("ndcg@5", "auc"), (1, 2), ())
    values = [figures(workspace.run(name), "ndcg@5") for name in mlp.runs]
    assert len(set(values)) == 2
    score = mlp.scores["ndcg@5"]
    assert score.value == pytest.approx(sum(values) / 2)
    assert score.deviation == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
    assert score.low < score.value < score.high
    assert best.scores["auc"].value > 0.9
    assert best.from_best is None
    assert popularity.from_best.verdict == "worse"
    assert mlp.from_best.value < 0  # two seeds, far apart: that is not much to go by
    assert mlp.from_best.low < mlp.from_best.value < mlp.from_best.high
    tested = [one.from_best for one in found.standings if one.from_best]
    smallest = min(tested, key=lambda one: one.p)
    assert smallest.p_holm == pytest.approx(min(1, smallest.p * comb(len(tested) + 1, 2)))  # any pair could be tested
    assert popularity.from_best.value == pytest.approx(popularity.scores["ndcg@5"].value - best.scores["ndcg@5"].value)
    assert not popularity.is_baseline  # a model of the bench, and not twice in the table
    assert popularity.parameters == workspace.run(popularity.runs[0]).manifest["parameters"]
    assert any(one.is_baseline for one in found.standings)
    assert "ease ranks first by NDCG@5, without a significant difference from mlp." in in_words(
        found
    )  # its two seeds differ too much
    assert said(events) == ["1 of 4: popularity", "2 of 4: mlp, seed 1", "3 of 4: ease", "4 of 4: mlp, seed 2"]
    bars = [event for event in events if isinstance(event, Progress) and event.task == "bench"]
    assert [(bar.done, bar.total) for bar in bars] == [(done, 4) for done in range(5)]
    seen = see((tmp_path / "x.html").read_text(), tmp_path, width=360)
    assert (seen["loaded"], seen["charts"], seen["headings"]) == ([], 1, ["Models", "Method"])
    assert seen["overflow"] <= 0


@pytest.fixture(scope="module")
def benched(tmp_path_factory):
    """A board of ease and of mlp with two seeds, and its workspace."""
    workspace = Workspace(tmp_path_factory.mktemp("bench") / "workspace")
    data = put_prepared(workspace, users=150, items=40, rows=3_000)
    config = a_config(data, GOOD, SHORT, metrics=("ndcg@5", "auc", "psndcg@5"), seeds=(1, 2))
    return bench_on(data, config, workspace), workspace


def test_no_interval_of_seeds_without_a_test(benched):
    scores = {one.label: one.scores["psndcg@5"] for one in benched[0].standings}
    assert scores["mlp"].deviation is not None
    assert scores["mlp"].interval is None
    for row in benched[0].standings:
        if len(row.runs) == 1:  # one run for all seeds: the intervals that evaluate prints
            saved = Evaluation.read(benched[1].run(row.runs[0]).evaluation).metrics
            assert all(one.interval == saved[name].interval for name, one in row.scores.items())


def test_coverage_is_a_column_of_the_page(benched):
    found, workspace = benched
    for row in found.standings:
        runs = [Evaluation.read(workspace.run(name).evaluation) for name in row.runs]
        known = [one.beyond["model"]["coverage@5"].value for one in runs]
        if known:
            assert row.coverage == pytest.approx(sum(known) / len(known))
    popularity = next(row for row in found.standings if row.label == "popularity")
    assert popularity.is_baseline
    assert 0 < popularity.coverage < next(row for row in found.standings if row.label == "ease").coverage

    assert f"<td>{popularity.coverage:.4f}</td>" in leaderboard_page(found)


def test_a_deterministic_model_is_fitted_once_for_all_seeds(benched):
    found, workspace = benched
    assert len(workspace.runs()) == 3
    ease, mlp = (next(one for one in found.standings if one.label == label) for label in ("ease", "mlp"))
    assert (ease.deterministic, ease.seeds, ease.seeds_in_words(seeds=2)) == (True, 1, "any")
    assert (mlp.deterministic, mlp.seeds, mlp.seeds_in_words(seeds=2)) == (False, 2, "2")
    assert ease.scores["ndcg@5"].deviation is None
    assert ease.scores["ndcg@5"].value == figures(workspace.run(ease.runs[0]), "ndcg@5")
    page = leaderboard_page(found)
    assert "Models with “any” seed are deterministic" in page
    assert f'{ease.scores["ndcg@5"].value:.4f}<span class="interval">± –</span>' in page


def test_what_is_there_is_not_trained_again_and_more_is_added(data, workspace):
    first = bench_on(data, a_config(data, GOOD), workspace)
    (run,) = workspace.runs()
    before = run.evaluation.stat().st_mtime_ns
    assert bench_on(data, a_config(data, GOOD), workspace) == first
    more = bench_on(data, a_config(data, GOOD, "popularity", seeds=(1, 2)), workspace, metric="auc")
    assert run.evaluation.stat().st_mtime_ns == before
    assert len(workspace.runs()) == 2
    assert (more.metric, more.metrics) == ("auc", ("auc", "ndcg@5"))
    assert next(one for one in more.standings if one.label == "ease").runs[0] == run.folder.name


def test_a_damaged_finished_run_is_trained_again(data, workspace):
    config = a_config(data, GOOD, SHORT)
    first = bench_on(data, config, workspace)
    (damaged,) = (run for run in workspace.runs() if run.manifest["model"] == "mlp")
    weights = damaged.checkpoint("best")
    content = bytearray(weights.read_bytes())
    content[-2] ^= 1  # the file keeps its size
    weights.write_bytes(content)
    damaged.evaluation.unlink()

    events: list[Event] = []
    healed = bench_on(data, config, workspace, emit=events.append)
    warnings = [event.text for event in events if isinstance(event, Message) and event.level == "warning"]
    assert warnings == [
        f"{weights.absolute()} is damaged: its content does not match its checksum; "
        f"the run is trained again, and {damaged.folder} can be deleted"
    ]
    assert healed.failures == ()
    before, after = (next(one for one in board.standings if one.label == "mlp") for board in (first, healed))
    assert after.runs != before.runs == (damaged.folder.name,)
    assert after.scores == before.scores
    events.clear()
    assert bench_on(data, config, workspace, emit=events.append) == healed  # the damaged run stays, unused
    assert all(event.level != "warning" for event in events if isinstance(event, Message))


def test_an_undefined_metric_ranks_nobody(data, workspace):
    """AUC needs negatives, and no row of valid is one."""
    rows = 0
    for shard in data.shards("valid"):
        table = pq.read_table(shard)
        positives = table.filter(pc.equal(table["label"], 1))
        rows += positives.num_rows
        pq.write_table(positives, shard)
    write_manifest(data.folder, "PreparedData", {"key": data.key, "rows": {**data.manifest["rows"], "valid": rows}})
    board = bench_on(data, a_config(data, GOOD), workspace, metric="auc")
    assert {row.scores["auc"].value for row in board.standings} == {None}
    assert in_words(board) == (
        "AUC is undefined for all models on these rows, so there is no order; "
        "sort by another metric, such as --metric ndcg@5."
    )
    page = leaderboard_page(board)
    assert "the best, and models without" not in page
    assert "AUC is undefined" in page
    by_ndcg = bench_on(data, a_config(data, GOOD), workspace)
    assert in_words(by_ndcg).startswith("ease is significantly better by NDCG@5")


def test_what_differs_by_a_hair_cannot_be_told_apart(data, workspace):
    one, other = ({**GOOD, "regularization": penalty} for penalty in (50.0, 50.5))
    found = bench_on(data, a_config(data, one, other), workspace)
    second = next(one for one in found.standings[1:] if one.runs)
    assert second.from_best.verdict == "noise"
    assert "without a significant difference from" in in_words(found)
    assert {one.label for one in found.standings if one.runs} == {
        "ease positive_only=true, regularization=50.0",
        "ease positive_only=true, regularization=50.5",
    }


def test_a_model_that_fails_is_told_and_the_others_go_on(data, workspace, monkeypatch):
    from recsys_cli.stages import bench as stage

    def broken(data, config, *args, **options):
        if config.model.name == "popularity":
            raise ValueError("shapes do not match")
        return train_on(data, config, *args, **options)

    train_on = stage.train_on
    monkeypatch.setattr(stage, "train_on", broken)
    events: list[Event] = []
    diverging = {**STEPS, "hidden_dims": [], "train": {"learning_rate": 1e30}}
    config = a_config(data, "popularity", diverging, GOOD, seeds=(1, 2))
    found = bench_on(data, config, workspace, emit=events.append)
    assert [(one["label"], one["seed"]) for one in found.failures] == [("popularity", 1), ("mlp", 1), ("mlp", 2)]
    assert found.failures[0]["message"] == "ValueError: shapes do not match"
    assert "not a finite number" in found.failures[1]["message"]
    assert [what for what, *_ in failures_in_words(found)] == ["popularity, seed 1", "mlp, seeds 1, 2"]
    assert "mlp, seeds 1, 2" in leaderboard_page(found)
    assert [one.label for one in found.standings if one.runs] == ["ease"]
    assert any(event.level == "warning" for event in events if isinstance(event, Message))
    with pytest.raises(TrainingError, match="all 1 runs failed; the last one, popularity: ValueError: shapes"):
        bench_on(data, a_config(data, "popularity"), workspace)


def test_without_a_section_it_says_what_to_write(data, workspace):
    config = a_config(data, GOOD)
    with pytest.raises(ConfigError, match="no bench section") as caught:
        bench_on(data, config.model_copy(update={"bench": None}), workspace)
    assert "models:" in str(caught.value.hint)
    with pytest.raises(ConfigError, match=r"ndcg@7 is not measured: add 7 to evaluate.k"):
        bench_on(data, config, workspace, metric="ndcg@7")
    with pytest.raises(ConfigError, match="unknown metric 'ndgc@5'"):
        bench_on(data, config, workspace, metric="ndgc@5")


def test_a_killed_bench_goes_on_in_the_middle_of_a_run(data, workspace, tmp_path):
    """10 steps an epoch: killed in the third epoch of mlp, after popularity was measured."""
    config = a_config(data, "popularity", STEPS)
    broken = Workspace(tmp_path / "broken")
    copied = broken.data(data.key)
    shutil.copytree(data.folder, copied.folder)
    assert stopped_in(25, signal.SIGKILL, bench_on, copied, config, broken) == -signal.SIGKILL
    (left,) = (run for run in broken.runs() if not run.exists)
    (done,) = (run for run in broken.runs() if run.exists)
    before = done.evaluation.stat().st_mtime_ns
    found = bench_on(copied, config, broken)
    assert {run.folder.name for run in broken.runs()} == {done.folder.name, left.folder.name}
    assert done.evaluation.stat().st_mtime_ns == before
    assert left.manifest["steps"] == 40
    whole = bench_on(data, a_config(data, STEPS), workspace)
    expected, resumed = (next(one for one in board.standings if one.label == "mlp") for board in (whole, found))
    assert resumed.scores == expected.scores


def test_an_interrupt_is_no_failure(data, workspace):
    def stop(event):
        if isinstance(event, Progress) and event.task.startswith("train"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench_on(data, a_config(data, STEPS), workspace, emit=stop)


def wanted(*models: str, seeds: tuple[int, ...]) -> BenchConfig:
    return BenchConfig.model_validate({"models": models, "seeds": seeds})


def test_each_model_comes_once_before_any_comes_twice_and_deterministic_ones_only_once():
    cells = cells_of(wanted("popularity", "mf", "ease", "mlp", seeds=(7, 3)))
    assert [str(cell) for cell in cells] == [
        "popularity", "mf, seed 7", "ease", "mlp, seed 7", "mf, seed 3", "mlp, seed 3",
    ]  # fmt: skip
    assert {cell.seed for cell in cells if cell.deterministic} == {7}


def test_a_model_that_cannot_be_loaded_is_left_for_its_turn():
    assert [cell.deterministic for cell in cells_of(wanted("no.such.package", "slim", seeds=(1,)))] == [False, True]
