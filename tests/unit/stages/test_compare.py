"""Comparison of trained and evaluated runs, and runs without a valid comparison."""

import pytest

from recsys_cli.config import EvaluateConfig, RunConfig
from recsys_cli.errors import ConfigError, MissingArtifactError
from recsys_cli.evaluation import Evaluation
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.stages.compare import compare
from recsys_cli.stages.evaluate import evaluate
from recsys_cli.stages.train import train_on
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace
from tests.checkerboard import put_prepared

EVALUATE = EvaluateConfig(k=(5,), bootstrap=200)


def trained(data: PreparedData, workspace: Workspace, model: dict, **train) -> TrainedRun:
    config = RunConfig.model_validate({
        "dataset": {"name": "movielens-latest-small"},
        "features": FittedPlan.read(data.folder).plan,
        "model": model,
        "train": {"device": "cpu", **train},
        "evaluate": EVALUATE,
    })  # fmt: skip
    return train_on(data, config, workspace).artifact


EASE = {"name": "ease", "positive_only": True}


@pytest.fixture
def data(workspace):
    return put_prepared(workspace, users=150, items=40, rows=3_000)


@pytest.fixture
def runs(data, workspace):
    """A run that learns the checkerboard, and a popularity run without skill."""
    return [trained(data, workspace, EASE), trained(data, workspace, {"name": "popularity"})]


def test_the_one_that_has_learnt_is_better(runs, workspace, tmp_path):
    for run in runs:
        evaluate(run, workspace)
    ease, popularity = (run.folder.name for run in runs)
    page = tmp_path / "page.html"
    found = compare([popularity, ease], workspace, html=page)
    assert (found.against, found.others) == ("popularity", ("ease",))
    figures = {figure.metric: figure for figure in found.figures}
    assert figures["ndcg@5"].differences["ease"].verdict == "better"
    assert figures["auc"].differences["ease"].verdict == "better"
    for run, label in zip(runs, ("ease", "popularity"), strict=True):
        measured = Evaluation.read(run.evaluation)
        for name in ("ndcg@5", "hr@5", "recall@5", "map@5"):
            assert figures[name].values[label] == pytest.approx(measured.ranking["model"][name].value)
        assert figures["auc"].values[label] == pytest.approx(measured.pointwise["model"]["auc"].value)
    assert found.tests == len(figures)
    assert "ease is significantly better by" in found.sentences[0]
    assert "ease minus popularity" in page.read_text()
    other = compare([ease], workspace, against=popularity)
    assert other == found
    assert compare([ease, popularity], workspace).figures[0].differences["popularity"].verdict == "worse"
    for run in runs:
        measured = run.read_evaluation()
        measured["counts"]["users_only_cold"] = measured["counts"]["users_ranked"]
        run.write_evaluation(measured)
    assert any(
        "have only cold items in their ground truth" in note for note in compare([ease, popularity], workspace).notes
    )


def test_what_was_not_evaluated_is_told_with_what_to_run(runs, workspace):
    ease, popularity = (run.folder.name for run in runs)
    evaluate(runs[0], workspace)
    with pytest.raises(MissingArtifactError, match=f"run {popularity} is not evaluated") as caught:
        compare([ease, popularity], workspace)
    assert caught.value.hint == f"recsys evaluate {popularity}"
    evaluate(runs[1], workspace)
    runs[1].rankings.unlink()
    with pytest.raises(MissingArtifactError, match=r"rankings\.safetensors is missing") as broken:
        compare([ease, popularity], workspace)
    assert broken.value.hint == f"recsys evaluate {popularity} --force"


def test_runs_that_were_asked_other_things_are_not_compared(runs, workspace):
    ease, popularity = (run.folder.name for run in runs)
    evaluate(runs[0], workspace)
    evaluate(runs[1], workspace, config=EVALUATE.model_copy(update={"k": (7,), "bootstrap": 50}))
    with pytest.raises(ConfigError, match=r"different evaluation settings: evaluate.k is \[5\] and \[7\]") as caught:
        compare([ease, popularity], workspace)
    assert caught.value.hint == f"recsys evaluate {popularity} 'evaluate.k=[5]'"


def test_runs_on_other_data_are_not_compared(runs, workspace):
    other = trained(put_prepared(workspace, users=150, items=40, rows=2_900), workspace, EASE)
    for run in (runs[0], other):
        evaluate(run, workspace)
    with pytest.raises(ConfigError, match="differ in held-out rows") as caught:
        compare([runs[0].folder.name, other.folder.name], workspace)
    assert "the same prepared data" in str(caught.value.hint)


def test_a_run_is_not_compared_with_itself(runs, workspace):
    name = runs[0].folder.name
    for names in ([name], [name, name]):
        with pytest.raises(ConfigError, match="at least two different runs"):
            compare(names, workspace)


def test_runs_of_one_model_are_called_by_their_ends(data, workspace):
    two = [trained(data, workspace, EASE, seed=seed) for seed in (1, 2)]
    for run in two:
        evaluate(run, workspace)
    found = compare([run.folder.name for run in two], workspace)
    assert [run.label for run in found.runs] == [f"ease-{run.key[:8]}" for run in two]
    assert [workspace.run(run.label).folder.name for run in found.runs] == [run.folder.name for run in two]
