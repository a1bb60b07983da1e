"""The evaluate stage on a trained run: its files, repeated calls, and errors."""

import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest

from recsys_cli.config import EvaluateConfig, ModelConfig, RunConfig
from recsys_cli.errors import DataError, MissingArtifactError
from recsys_cli.evaluation import Ceiling, Evaluation
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.events import Event, Message
from recsys_cli.metrics.labels import AUC
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.stages.evaluate import evaluate, selected_on
from recsys_cli.stages.train import train_on
from recsys_cli.workspace import PreparedData, Workspace, write_manifest
from tests.checkerboard import put_prepared

EVALUATE = {"k": [5], "bootstrap": 20, "batch_size": 500}


def config_of(data: PreparedData) -> RunConfig:
    return RunConfig.model_validate({
        "dataset": {"name": "movielens-latest-small"},
        "features": FittedPlan.read(data.folder).plan,
        "model": {"name": "mlp", "embedding_dim": 8, "hidden_dims": [16]},
        "train": {"epochs": 6, "batch_size": 100, "learning_rate": 0.02, "device": "cpu", "precision": "fp32"},
        "evaluate": EVALUATE,
    })  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    workspace = Workspace(tmp_path_factory.mktemp("evaluate") / "workspace")
    data = put_prepared(workspace, rows=4_000)
    train_on(data, config_of(data), workspace)
    return workspace


@pytest.fixture
def workspace(trained, tmp_path):
    """A copy of the workspace of `trained`."""
    shutil.copytree(trained.root, tmp_path / "workspace")
    return Workspace(tmp_path / "workspace")


@pytest.fixture
def data(workspace):
    return workspace.all_data()[0]


@pytest.fixture
def config(data):
    return config_of(data)


@pytest.fixture
def run(workspace):
    return workspace.runs()[0]


def test_items_that_a_model_leaves_out_are_named(data, config, workspace):
    events: list[Event] = []
    options = {"name": "ease", "max_items": 5}
    changed = config.model_copy(update={"model": ModelConfig.model_validate(options)})
    made = train_on(data, changed, workspace, emit=events.append).artifact
    left_out = made.manifest["left_out"]
    assert left_out["of_items"] - left_out["items"] == 5
    rows = pq.read_table(data.folder / "train", columns=["userId", "movieId"])
    pairs = np.unique(np.stack([column.to_numpy() for column in rows.columns]), axis=1)
    _, counts = np.unique(pairs[1], return_counts=True)
    assert left_out["interactions"] == pytest.approx(1 - np.sort(counts)[-5:].sum() / counts.sum())
    counted = f"{left_out['items']} of {left_out['of_items']} items"
    sentence = f"leaves out {counted}, with {left_out['interactions']:.1%} of the interactions"
    assert any(sentence in event.text for event in events if isinstance(event, Message) and event.level == "warning")
    evaluate(made, workspace)
    found = Evaluation.read(made.evaluation)
    assert [note for note in found.notes if sentence in note and note.startswith("The model ")]
    assert sentence in made.report.read_text(encoding="utf-8")
    whole = config.model_copy(update={"model": ModelConfig.model_validate({"name": "ease"})})
    assert train_on(data, whole, workspace).artifact.manifest["left_out"] is None


def test_evaluate_measures_the_checkerboard_as_learnt(run, workspace):
    made = evaluate(run, workspace)

    assert (made.artifact, made.up_to_date) == (run, False)
    found = Evaluation.read(run.evaluation)
    assert found.pointwise["model"]["auc"].value > 0.95
    assert found.pointwise["model"]["auc"].low > found.pointwise["item mean"]["auc"].high
    assert found.ranking["model"]["ndcg@5"].value > found.ranking["popularity"]["ndcg@5"].value
    assert found.run == run.folder.name
    assert (found.split, found.device, found.ceiling) == ("valid", "cpu", None)
    assert found.config.model_dump(mode="json")["k"] == [5]
    assert any("live system" in note for note in found.notes)
    page = run.report.read_text()
    for shown in (run.folder.name, run.manifest["key"], "embedding_dim: 8", "AUC over steps"):
        assert shown in page


def test_evaluate_keeps_what_the_figures_are_of_and_equals_what_training_measured(run, workspace):
    evaluate(run, workspace)

    found, kept, best = Evaluation.read(run.evaluation), Rankings.read(run.rankings), run.manifest["valid"]
    assert found.pointwise["model"]["auc"].value == pytest.approx(best["auc"], abs=1e-6)
    assert found.pointwise["model"]["log_loss"].value == pytest.approx(best["loss"], abs=1e-5)
    assert kept.systems == tuple(found.ranking)
    assert (kept.split, kept.k, kept.protocol) == ("valid", (5,), found.protocol.model_dump())
    assert len(kept.users) == found.counts.users_ranked
    assert kept.hits["model"].shape == kept.items["model"].shape == (len(kept.users), 5)
    assert kept.hits["model"].any(axis=1).mean() == pytest.approx(found.ranking["model"]["hr@5"].value)
    assert AUC.of_rows(kept.labels, kept.logits) == pytest.approx(found.pointwise["model"]["auc"].value)
    for user, items, hits in zip(kept.users, kept.items["model"], kept.hits["model"], strict=True):
        liked = kept.row_items[(kept.row_users == user) & (kept.labels == 1)]
        assert set(items[hits]) <= set(liked)


def test_a_sampled_evaluation_leaves_the_full_one_as_it_is(run, workspace):
    config = EvaluateConfig(**EVALUATE)
    full = evaluate(run, workspace, config=config).artifact
    before = [file.read_bytes() for file in (full.evaluation, full.rankings, full.report)]

    drawn = config.model_copy(update={"candidates": "sampled-uniform", "sampled_items": 10})
    sampled = evaluate(run, workspace, config=drawn).artifact

    assert [file.read_bytes() for file in (full.evaluation, full.rankings, full.report)] == before
    assert "sampled_ndcg@5" in Evaluation.read(sampled.evaluation).ranking["model"]
    assert evaluate(run, workspace, config=config).up_to_date
    assert evaluate(run, workspace, config=drawn).up_to_date
    assert run.evaluated() == full
    full.evaluation.unlink()
    assert run.evaluated() == sampled


def test_rows_that_chose_the_epoch_are_marked(data, config, run, workspace):
    """Valid selects one of several epochs; a single epoch is no selection."""
    evaluate(run, workspace)
    found = Evaluation.read(run.evaluation)
    assert (found.split, found.selected) == ("valid", ("epoch",))
    assert found.notes[0].startswith("† The best epoch was chosen on valid, so the model's metrics are optimistic; ")
    assert "split.test=0.1" in found.notes[0]
    assert "mlp †" in run.report.read_text()

    single = config.model_copy(update={"train": config.train.model_copy(update={"epochs": 1})})
    once = train_on(data, single, workspace).artifact
    evaluate(once, workspace)
    assert Evaluation.read(once.evaluation).selected == ()
    assert "†" not in once.report.read_text()


def test_rows_that_chose_the_trial_are_marked(run, workspace):
    study = workspace.study("0" * 64)
    known = {"key": "0" * 64, "metric": {}, "trials": {}, "space": {}}
    write_manifest(study.folder, "TunedStudy", {**known, "ranking": [{"run": run.folder.name}, {"run": None}]})
    assert selected_on("valid", run, workspace) == ("epoch", "trial")
    assert selected_on("test", run, workspace) == ()
    (study.folder / "manifest.json").write_text("{")
    assert selected_on("valid", run, workspace) == ("epoch",)


def test_evaluate_again_is_up_to_date_until_something_changes(run, workspace):
    config = EvaluateConfig(**EVALUATE)

    def again(**changes):
        force = changes.pop("force", False)
        return evaluate(run, workspace, config=config.model_copy(update=changes), force=force).up_to_date

    assert not again()
    assert again()
    assert again(batch_size=70)
    assert not again(force=True)
    assert not again(seed=1)
    run.report.unlink()
    assert not again(seed=1)
    run.rankings.unlink()
    assert not again(seed=1)
    run.evaluation.write_text("{}")
    assert not again(seed=1)


def test_evaluate_adds_the_ceiling_that_the_data_knows(run, workspace):
    raw = workspace.raw("movielens-latest-small")
    raw.folder.mkdir(parents=True)
    ceiling = {"label": "rating>3", "auc": 0.87, "rows": 10}
    write_manifest(raw.folder, "RawData", {"key": "any", "facts": {"ceiling": ceiling}})

    evaluate(run, workspace)
    assert Evaluation.read(run.evaluation).ceiling == Ceiling(label="rating>3", auc=0.87)

    write_manifest(raw.folder, "RawData", {"key": "any", "facts": {"ceiling": ceiling | {"label": "rating > 4"}}})
    evaluate(run, workspace, force=True)
    assert Evaluation.read(run.evaluation).ceiling is None


def test_evaluate_refuses_an_unfinished_run(run, workspace):
    (run.folder / "manifest.json").unlink()

    with pytest.raises(
        MissingArtifactError, match=r"is not finished: .* interrupted after 6 epochs, and keeps"
    ) as error:
        evaluate(run, workspace)
    first, second = str(error.value.hint).split("; ")
    assert first == f"recsys train {run.config} --resume continues it"
    assert second == f"recsys train {run.config} --force starts over"


def test_evaluate_refuses_a_run_without_its_data(run, workspace, data):
    shutil.rmtree(data.folder)

    with pytest.raises(MissingArtifactError, match="does not exist"):
        evaluate(run, workspace)


def test_evaluate_refuses_a_checkpoint_that_is_none(run, workspace):
    run.checkpoint("best").write_bytes(b"not tensors")

    with pytest.raises(DataError, match=r"best\.safetensors is damaged: it has 11 bytes"):
        evaluate(run, workspace)
    assert not run.evaluation.exists()


def test_evaluate_works_on_a_run_that_was_moved(run, workspace, tmp_path):
    evaluate(run, workspace)
    moved = Workspace(tmp_path / "elsewhere")
    shutil.copytree(workspace.root, moved.root)

    (again,) = moved.runs()
    assert evaluate(again, moved).up_to_date
    evaluate(again, moved, force=True)

    first, other = run.read_evaluation(), again.read_evaluation()
    assert first.pop("seconds").keys() == other.pop("seconds").keys()
    assert first == other
