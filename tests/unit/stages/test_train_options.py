"""Training options through the stage: monitor, moving average, row weights, scales, and resume."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from recsys_cli.config import EvaluateConfig, RunConfig
from recsys_cli.errors import ConfigError, DataError, TrainingError
from recsys_cli.evaluation import Evaluation
from recsys_cli.events import Event, Message, Progress
from recsys_cli.stages.evaluate import evaluate
from recsys_cli.stages.train import train_on
from recsys_cli.training.checkpoint import Checkpoint
from recsys_cli.training.step import Step
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace
from tests.checkerboard import a_config, lines_of, same_weights, set_column


def trained(data: PreparedData, workspace: Workspace, **options: Any) -> TrainedRun:
    return train_on(data, a_config(**options), workspace).artifact


# -- what is monitored ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("monitor", "best_of"), [("loss", min), ("log_loss", min), ("accuracy", max)])
def test_the_best_epoch_is_best_by_what_is_monitored(make_prepared, workspace, monitor, best_of):
    """Few rows and a wide network, for an early best loss."""
    model = {"name": "mlp", "embedding_dim": 16}
    data = make_prepared(users=200, items=200, rows=1_000)
    run = trained(data, workspace, model=model, epochs=6, batch_size=128, monitor=monitor)
    figures = [record["valid"][monitor] for record in run.manifest["history"]]
    assert len(set(figures)) > 1
    assert run.manifest["best_epoch"] == 1 + figures.index(best_of(figures))
    assert run.manifest["monitor"] == monitor
    assert run.manifest["valid"][monitor] == best_of(figures)
    assert list(run.manifest["valid"]) == list(dict.fromkeys(["loss", "auc", monitor]))
    assert [line["valid"][monitor] for line in lines_of(run) if line["event"] == "epoch"] == figures


def test_early_stopping_keeps_the_best_epoch(make_prepared, workspace):
    data, model = make_prepared(users=200, items=200, rows=1_000), {"name": "mlp", "embedding_dim": 16}
    run = trained(data, workspace, model=model, epochs=30, batch_size=128, monitor="loss", early_stopping=2)
    assert run.manifest["epochs"] == run.manifest["best_epoch"] + 2 < 30
    last, kept = load_file(run.checkpoint("last")), load_file(run.checkpoint("best"))
    assert kept.keys() == {name for name in last if name.startswith("model.")}
    assert any((kept[name] != last[name]).any() for name in kept)


@pytest.mark.parametrize("options", [{}, {"ema_decay": 0.9}, {"positive_weight": 4.0, "label_smoothing": 0.1}], ids=str)
def test_validation_measures_what_evaluation_does_of_the_best_checkpoint(make_prepared, workspace, options):
    """`best` holds the average, and the validation loss ignores weights and smoothing."""
    run = trained(make_prepared(), workspace, monitor="ndcg@5", **options)
    evaluate(run, workspace_of(run), config=EvaluateConfig(split="valid", k=(5,), bootstrap=10))
    found = Evaluation.read(run.evaluation)
    valid = run.manifest["valid"]
    assert 0 < valid["ndcg@5"] < 1
    assert valid["ndcg@5"] == pytest.approx(found.ranking["model"]["ndcg@5"].value)
    assert valid["auc"] == pytest.approx(found.pointwise["model"]["auc"].value)
    assert valid["loss"] == pytest.approx(found.pointwise["model"]["log_loss"].value, rel=1e-5)


def workspace_of(run: TrainedRun) -> Workspace:
    """The workspace of a run, with its data in its place."""
    workspace = Workspace(run.folder.parents[1])
    known = workspace.data(run.manifest["data"]["key"])
    if not known.exists:
        known.folder.parent.mkdir(parents=True, exist_ok=True)
        known.folder.symlink_to(next(workspace.root.parent.glob("prepared-*")))
    return workspace


def test_a_ranking_says_how_far_it_is(make_prepared, workspace):
    events: list[Event] = []
    train_on(make_prepared(), a_config(epochs=1, monitor="recall@3"), workspace, emit=events.append)
    assert any(isinstance(event, Progress) and event.task == "rank for recall@3" for event in events)
    assert any(isinstance(event, Message) and "valid recall@3 0." in event.text for event in events)


def test_a_metric_that_is_not_there_ends_it_before_it_begins(make_prepared, workspace):
    with pytest.raises(ConfigError, match=r"unknown metric 'aucc' \(did you mean auc\?\)"):
        trained(make_prepared(), workspace, monitor="aucc")


def of_new_users(data: PreparedData) -> PreparedData:
    """Make all users of valid cold-start users."""
    set_column(data, "valid", "userId", lambda _, rows: [2] * rows)
    return data


def test_a_default_that_cannot_be_measured_gives_way_to_a_figure_of_rows(make_prepared, workspace):
    data, told = of_new_users(make_prepared(rows=300)), list[Event]()
    two_tower = a_config(model={"name": "two-tower", "embedding_dim": 4}, epochs=1, monitor="ndcg@10")
    run = train_on(data, two_tower, workspace, emit=told.append).artifact
    texts = [event.text for event in told if isinstance(event, Message) and event.level == "warning"]
    assert any("ndcg@10 cannot be measured" in text and "auc selects the best epoch" in text for text in texts)
    assert set(run.manifest["history"][0]["valid"]) == {"loss", "auc"}
    written = a_config(model={"name": "two-tower", "embedding_dim": 4}, epochs=1, monitor="recall@5")
    with pytest.raises(ConfigError, match="recall@5 cannot be measured"):
        train_on(data, written, workspace)


def test_rankings_need_somebody_with_something_to_find(make_prepared, workspace):
    data = of_new_users(make_prepared(rows=300))
    with pytest.raises(
        ConfigError, match="ndcg@10 cannot be measured: no user of train has relevant held-out items"
    ) as error:
        trained(data, workspace, monitor="ndcg@10")
    assert str(error.value.hint).endswith("only recsys evaluate ranks for cold-start users")


def test_where_a_figure_is_not_defined_the_loss_decides(make_prepared, workspace):
    data = make_prepared()
    set_column(data, "valid", "label", lambda _, rows: [1] * rows)
    run = trained(data, workspace, epochs=3)
    losses = [record["valid"]["loss"] for record in run.manifest["history"]]
    assert [record["valid"]["auc"] for record in run.manifest["history"]] == [None] * 3
    assert run.manifest["best_epoch"] == 1 + losses.index(min(losses))


# -- averages, weights, losses that are no numbers --------------------------------------------------------------------


def test_best_holds_the_average_and_last_both(make_prepared, workspace):
    run = trained(make_prepared(), workspace, epochs=1, ema_decay=0.9)
    best, last = load_file(run.checkpoint("best")), load_file(run.checkpoint("last"))
    averaged = {name.removeprefix("average."): tensor for name, tensor in last.items() if name.startswith("average.")}
    assert "embeddings.tables.of_userId.weight" in averaged
    for name, tensor in averaged.items():
        assert np.array_equal(best[f"model.{name}"], tensor)
    assert any(not np.array_equal(last[f"model.{name}"], tensor) for name, tensor in averaged.items())


def test_balanced_counts_the_rows_of_train(make_prepared, workspace):
    data = make_prepared()
    set_column(data, "train", "label", lambda shard, rows: np.arange(rows) % 10 < 2 + shard)  # 2 and 3 of 10
    run = trained(data, workspace, epochs=1, positive_weight="balanced")
    assert run.manifest["positive_weight"] == pytest.approx(0.75 / 0.25)


@pytest.mark.parametrize(
    ("value", "problem"),
    [(0, "no row of train is positive"), (1, "train has only positive rows by label: there is nothing to balance")],
)
def test_rows_of_one_kind_cannot_be_balanced(make_prepared, workspace, value, problem):
    data = make_prepared(rows=300)
    set_column(data, "train", "label", lambda _, rows: [value] * rows)
    with pytest.raises(DataError, match=problem):
        trained(data, workspace, positive_weight="balanced")


def test_weights_of_positive_rows_raise_what_is_predicted(make_prepared, workspace):
    """Random labels, half of them 1: with a positive weight of 4, the optimum is 0.8."""
    data = make_prepared(rows=4_000)
    set_column(data, "train", "label", lambda _, rows: np.random.default_rng(0).integers(0, 2, rows))
    model = {"name": "mlp", "embedding_dim": 2, "hidden_dims": []}
    run = trained(data, workspace, model=model, batch_size=64, positive_weight=4.0, monitor="calibration")
    assert run.manifest["valid"]["calibration"] == pytest.approx(0.8 / 0.5, rel=0.1)


def test_nothing_of_a_broken_step_is_saved(make_prepared, workspace):
    config = a_config(epochs=9, learning_rate=1e30, checkpoint_steps=1, model={"name": "mlp", "hidden_dims": []})
    with pytest.raises(TrainingError, match=r"not a finite number at step (\d+) \(epoch 1\)") as caught:
        train_on(make_prepared(), config, workspace)
    (run,) = workspace.runs()
    saved = Checkpoint.load(run.checkpoint("last"))
    assert f"step {saved.meta['progress']['total_steps'] + 1} " in caught.value.message
    assert "learning_rate" in str(caught.value.hint)
    assert np.isfinite(saved.meta["progress"]["loss"])
    assert all(np.isfinite(line["loss"]) for line in lines_of(run))


def test_weights_that_are_no_numbers_are_not_saved(make_prepared, workspace, monkeypatch):
    """A finite loss with an infinite gradient is detected before a checkpoint is written."""
    update = Step._update

    def breaking(step):
        update(step)
        if int(step.model.get_buffer("tower.rest.1.num_batches_tracked")) == 5:
            with torch.no_grad():
                step.model.get_parameter("tower.first.linear.bias")[0] = torch.inf

    monkeypatch.setattr(Step, "_update", breaking)
    with pytest.raises(
        TrainingError, match=r"model\.tower\.first\.linear\.bias is not finite after step 5 \(epoch 1\)"
    ):
        train_on(make_prepared(), a_config(checkpoint_steps=1), workspace)
    (run,) = workspace.runs()
    assert Checkpoint.load(run.checkpoint("last")).meta["progress"]["total_steps"] == 4


def test_fp16_learns_and_keeps_its_scale(make_prepared, workspace):
    run = trained(make_prepared(rows=4_000), workspace, epochs=6, precision="fp16", sparse_embeddings=True)
    assert run.manifest["precision"] == "fp16"
    assert run.manifest["valid"]["auc"] > 0.95
    scaler = Checkpoint.load(run.checkpoint("last")).meta["scaler"]
    assert scaler["scale"] >= 1
    assert scaler["_growth_tracker"] <= 6 * 16


# -- resuming ---------------------------------------------------------------------------------------------------------


def check_resuming(data: PreparedData, config: RunConfig, root: Path) -> tuple[TrainedRun, list[Event]]:
    """Interrupt a run in step 14 (its last checkpoint is of step 12), resume it, and compare it with a whole one."""
    events: list[Event] = []
    whole = train_on(data, config, Workspace(root / "whole"), emit=events.append).artifact
    steps, broken = 0, Workspace(root / "broken")

    def stop(event):
        nonlocal steps
        steps += isinstance(event, Progress) and event.task.startswith("train")
        if steps == 14:
            raise InterruptedError("step 14")

    with pytest.raises(InterruptedError, match="step 14"):
        train_on(data, config, broken, emit=stop)
    again = train_on(data, config, broken, resume=True).artifact
    assert same_weights(again, whole)
    assert same_weights(again, whole, "best")
    last, expected = (Checkpoint.load(run.checkpoint("last")).meta for run in (again, whole))
    assert last["scaler"] == expected["scaler"]
    kept = ("event", "epoch", "step", "loss", "learning_rate", "train_loss", "valid")
    assert [[x.get(k) for k in kept] for x in lines_of(again)] == [[x.get(k) for k in kept] for x in lines_of(whole)]
    return whole, events


@pytest.mark.parametrize(
    "options",
    [
        {"ema_decay": 0.9},
        {"ema_decay": 0.9, "sparse_embeddings": True},
        {"precision": "fp16", "max_grad_norm": 0.1},
        {"schedule": {"name": "plateau", "gamma": 0.1, "warmup_steps": 3}, "learning_rate": 0.5},
        {"schedule": "cosine", "max_grad_norm": 0.1, "gradient_accumulation_steps": 3, "sparse_embeddings": True},
        {"positive_weight": "balanced", "label_smoothing": 0.1, "monitor": "log_loss", "early_stopping": 2},
    ],
    ids=str,
)
def test_a_broken_run_resumes_to_the_same_bits(make_prepared, tmp_path, options):
    """8 steps an epoch and a checkpoint every 3."""
    check_resuming(make_prepared(), a_config(epochs=4, checkpoint_steps=3, **options), tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch, while it compiles
def test_a_compiled_run_resumes_too_and_says_how_long_compiling_took(make_prepared, tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))  # no machine code: that takes long
    model = {"name": "mlp", "embedding_dim": 4, "hidden_dims": [4]}
    config = a_config(model, epochs=2, checkpoint_steps=3, compile=True)
    whole, events = check_resuming(make_prepared(), config, tmp_path)
    assert not any("_orig_mod" in name for name in load_file(whole.checkpoint("last")))
    assert whole.manifest["seconds"]["compiling"] > 0
    assert any(isinstance(event, Message) and "compilation took" in event.text for event in events)
