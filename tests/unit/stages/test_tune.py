"""Search with a known optimum: on the checkerboard, a learning rate of 0.000001 learns nothing, 0.05 everything."""

import json
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from recsys_cli.config import ModelConfig, RunConfig, TuneConfig, dump, from_values, load
from recsys_cli.config.load import model_config_type, search_space
from recsys_cli.errors import ConfigError, DataError, LockedError, MissingExtraError, TrainingError
from recsys_cli.events import Event, Message, Progress
from recsys_cli.registry import MODELS
from recsys_cli.stages.run_selection import run_key, train_lock
from recsys_cli.stages.train import train_on
from recsys_cli.stages.tune import remove_unfinished, study_key, tune_on
from recsys_cli.tuning.trial import Trial, caveat
from recsys_cli.workspace import TunedStudy, Workspace, run_lock
from tests.ranks import FORKS, stopped_in
from tests.rated import FEATURES
from tests.sealing import reseal

pytest.importorskip("optuna")

RATES = {"train.learning_rate": {"choices": [1e-6, 0.05]}}
RANGE = {"train.learning_rate": {"low": 1e-5, "high": 0.1, "log": True}, "model.hidden_dims": {"choices": [[8], [16]]}}


def a_config(space: dict[str, Any] | None = None, *, train: dict[str, Any] | None = None, **tune: Any) -> RunConfig:
    return RunConfig.model_validate({
        "dataset": {"name": "synthetic-small"},
        "features": FEATURES,
        "model": {"name": "mlp", "embedding_dim": 8, "hidden_dims": [16]},
        "train": {"epochs": 3, "batch_size": 256, "learning_rate": 1e-6, "device": "cpu", "precision": "fp32", **(train or {})},
        "tune": {"space": space or RATES, "trials": 4, "pruning": "none", **tune},
    })  # fmt: skip


def ranking(study: TunedStudy) -> list[dict[str, Any]]:
    return study.manifest["ranking"]


def tried(study: TunedStudy) -> list[tuple[Any, ...]]:
    """Return values and results of all trials in order, without durations."""
    entries = sorted(ranking(study), key=lambda entry: entry["trial"])
    return [(entry["changes"], entry["state"], entry["value"], entry["curve"]) for entry in entries]


def said(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, Message)]


def test_the_best_is_found_and_is_trained_already(make_prepared, workspace):
    data, events = make_prepared(), list[Event]()
    made = tune_on(data, a_config(), workspace, emit=events.append)
    study, manifest = made.artifact, made.artifact.manifest
    assert not made.up_to_date
    assert manifest["best"]["changes"] == {"train.learning_rate": 0.05}
    assert manifest["best"]["value"] > 0.9
    assert manifest["best"]["overrides"] == "train.learning_rate=0.05"
    assert manifest["metric"] == {"name": "auc", "better": "higher"}
    assert manifest["trials"] == {"wanted": 2, "finished": 2, "pruned": 0, "running": 0, "failed": 0}
    values = [entry["value"] for entry in ranking(study)]
    assert values == sorted(values, reverse=True)
    assert values[-1] < 0.7
    best = load(study.best)
    assert (best.train.learning_rate, best.tune) == (0.05, None)
    (kept,) = workspace.runs()
    assert kept.folder.name == manifest["best"]["run"]
    assert kept.manifest["valid"]["auc"] == manifest["best"]["value"]
    assert train_on(data, best, workspace).up_to_date
    assert any("best so far" in text for text in said(events))
    bars = [event for event in events if isinstance(event, Progress) and event.unit == "trials"]
    assert (bars[-1].done, bars[-1].total) == (2, 2)


def test_each_combination_of_values_is_tried_once(make_prepared, workspace):
    data, events = make_prepared(rows=600), list[Event]()
    space = {
        "train.learning_rate": {"choices": [0.01, 0.05]},
        "model.hidden_dims": {"choices": [[8], [16]]},
        "train.epochs": {"low": 1, "high": 3, "step": 2},
    }
    own = {"learning_rate": 0.05}
    study = tune_on(data, a_config(space, trials=30, train=own), workspace, emit=events.append).artifact
    assert len(ranking(study)) == len({json.dumps(entry["changes"]) for entry in ranking(study)}) == 8
    assert study.manifest["trials"]["wanted"] == study.manifest["combinations"] == 8
    assert said(events)[0] == "the search space has 8 combinations of values: 8 trials instead of 30"
    assert tune_on(data, a_config(space, trials=40, train=own), workspace).up_to_date


@pytest.mark.slow
def test_same_seed_same_trials(make_prepared, tmp_path):
    data = make_prepared(rows=600)
    config = a_config(RANGE, trials=11, train={"epochs": 1})  # more than TPE draws at random
    one, two, other = (
        tune_on(data, wanted, Workspace(tmp_path / name)).artifact
        for name, wanted in (("one", config), ("two", config), ("three", a_config(RANGE, trials=2, seed=1, train={"epochs": 1})))
    )  # fmt: skip
    assert tried(one) == tried(two)
    assert [values for values, *_ in tried(one)][:2] != [values for values, *_ in tried(other)]
    assert len({json.dumps(values) for values, *_ in tried(one)}) == 11


def test_more_trials_are_added_to_those_there_are(make_prepared, workspace, tmp_path):
    data = make_prepared()
    first = tune_on(data, a_config(RANGE, trials=3, train={"epochs": 1}), workspace)
    assert tune_on(data, a_config(RANGE, trials=3, train={"epochs": 1}), workspace).up_to_date
    assert tune_on(data, a_config(RANGE, trials=2, train={"epochs": 1}), workspace).up_to_date
    more = tune_on(data, a_config(RANGE, trials=5, train={"epochs": 1}), workspace)
    assert not more.up_to_date
    assert more.artifact == first.artifact
    whole = tune_on(data, a_config(RANGE, trials=5, train={"epochs": 1}), Workspace(tmp_path / "whole")).artifact
    assert tried(more.artifact) == tried(whole)


def test_force_begins_anew(make_prepared, workspace):
    data, config = make_prepared(), a_config(RANGE, trials=1, train={"epochs": 1})
    tune_on(data, a_config(RANGE, trials=2, train={"epochs": 1}), workspace)
    made = tune_on(data, config, workspace, force=True)
    assert not made.up_to_date
    assert len(ranking(made.artifact)) == 1


@pytest.mark.slow
def test_what_is_behind_is_ended_early(make_prepared, workspace):
    # More good rates than bad ones: whatever the order of the trials, the median of those that have ended is good at last.
    space = {"train.learning_rate": {"choices": [0.03, 0.04, 0.05, 0.06, 0.07, 1e-6, 1.1e-6, 1.2e-6]}}
    config = a_config(space, trials=10, pruning="median", pruning_trials=2, pruning_epochs=2)
    study = tune_on(make_prepared(), config, workspace).artifact
    pruned = [entry for entry in ranking(study) if entry["state"] == "pruned"]
    assert pruned
    assert all(entry["epochs"] == 2 and entry["changes"]["train.learning_rate"] < 1e-5 for entry in pruned)
    assert len(workspace.runs()) == 1  # that of the best: what was begun for the others is gone


def test_a_lower_loss_is_better(make_prepared, workspace):
    study = tune_on(make_prepared(), a_config(trials=3, train={"monitor": "loss"}), workspace).artifact
    assert study.manifest["metric"] == {"name": "loss", "better": "lower"}
    assert study.manifest["best"]["changes"] == {"train.learning_rate": 0.05}
    assert study.manifest["best"]["value"] == min(entry["value"] for entry in ranking(study))


def test_a_trial_that_cannot_be_trained_is_failed_and_the_study_goes_on(make_prepared, workspace):
    space = {"train.learning_rate": {"choices": [0.05, 1e30]}, "model.hidden_dims": {"choices": [[]]}}
    study = tune_on(make_prepared(), a_config(space, trials=5), workspace).artifact
    failed = [entry for entry in ranking(study) if entry["state"] == "failed"]
    assert failed
    assert study.manifest["trials"]["finished"] == 3 - len(failed)
    assert any("the loss is not a finite number" in entry["message"] for entry in failed)
    assert len(workspace.runs()) == 1


def test_values_that_exclude_each_other_are_a_failed_trial(make_prepared, workspace):
    space = {"train.sparse_embeddings": {"choices": [True, False]}}
    config = a_config(space, trials=4, train={"embedding_weight_decay": 0.1, "epochs": 1})
    study = tune_on(make_prepared(), config, workspace).artifact
    states = {entry["changes"]["train.sparse_embeddings"]: entry["state"] for entry in ranking(study)}
    assert states == {True: "failed", False: "finished"}


@pytest.mark.parametrize(
    "error",
    [MemoryError("no more"), RuntimeError("CUDA out of memory. Tried to"), RuntimeError("can't allocate memory: you")],
)
def test_a_trial_that_runs_out_of_memory_is_failed(make_prepared, workspace, monkeypatch, error):
    def train_some(data, config, *args, **options):
        if config.train.learning_rate == 0.05:
            raise error
        return train_on(data, config, *args, **options)

    monkeypatch.setattr("recsys_cli.stages.tune.train_on", train_some)
    study = tune_on(make_prepared(), a_config(train={"epochs": 1}), workspace).artifact
    (message,) = [entry["message"] for entry in ranking(study) if entry["state"] == "failed"]
    assert str(error) in message
    assert study.manifest["best"]["changes"] == {"train.learning_rate": 1e-6}


def test_another_error_ends_the_search_and_can_be_seen(make_prepared, workspace, monkeypatch):
    def fail(*args, **options):
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr("recsys_cli.stages.tune.train_on", fail)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        tune_on(make_prepared(), a_config(), workspace)


def test_where_all_fail_the_last_reason_is_told(make_prepared, workspace):
    space = {"train.learning_rate": {"choices": [1e30, 1e31]}, "model.hidden_dims": {"choices": [[]]}}
    config = a_config(space, train={"learning_rate": 1e30})
    data = make_prepared()
    for _ in range(2):  # the second time there is nothing left to try
        with pytest.raises(TrainingError, match="all 3 trials failed; the last one: the loss is not a finite number"):
            tune_on(data, config, workspace)


def test_runs_of_others_and_evaluated_ones_are_left_alone(make_prepared, workspace):
    data = make_prepared()
    alone = a_config(train={"learning_rate": 1e-6, "epochs": 1}).model_copy(update={"tune": None})
    before = train_on(data, alone, workspace).artifact
    config = a_config({"train.learning_rate": {"choices": [1e-6, 1e-5, 0.05]}}, trials=9, train={"epochs": 1}, seed=3)
    study = tune_on(data, config, workspace).artifact
    assert {entry["changes"]["train.learning_rate"] for entry in ranking(study)} == {1e-6, 1e-5, 0.05}
    assert {run.folder.name for run in workspace.runs()} == {before.folder.name, study.manifest["best"]["run"]}


def test_a_study_depends_on_what_is_searched_and_not_on_how_long(make_prepared):
    data = make_prepared(rows=300)
    keys = [
        study_key(config, data)
        for config in (
            a_config(),
            a_config(trials=9),
            a_config(seed=9),
            a_config(pruning="median"),
            a_config(RANGE),
            a_config(train={"epochs": 2}),
        )
    ]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 5


def test_first_trial_is_the_config_itself(make_prepared, workspace):
    data, events = make_prepared(), list[Event]()
    config = a_config({"train.learning_rate": {"choices": [1e-6, 1e-5]}}, train={"learning_rate": 0.05})
    before = train_on(data, config.model_copy(update={"tune": None}), workspace).artifact
    study = tune_on(data, config, workspace, emit=events.append).artifact
    assert said(events)[0] == "the search space has 3 combinations of values: 3 trials instead of 4"
    assert "trial 1 of 3: the config" in said(events)
    assert study.manifest["best"]["trial"] == 1
    assert study.manifest["best"]["run"] == before.folder.name
    assert str(caveat(study.manifest)).startswith("no trial beats the config's own values")
    assert load(study.best).train.learning_rate == 0.05


def test_slow_starter_outlives_the_first_quarter_of_its_epochs(make_prepared, workspace):
    space = {"train.learning_rate": {"choices": [0.03, 0.05, 0.07, 1e-6, 1.1e-6, 1.2e-6]}}
    train = {"learning_rate": 0.05, "epochs": 8}
    config = a_config(space, trials=10, pruning="median", pruning_trials=2, train=train)
    pruned = [
        entry for entry in ranking(tune_on(make_prepared(), config, workspace).artifact) if entry["state"] == "pruned"
    ]
    assert pruned
    assert all(entry["epochs"] == 2 for entry in pruned)


def test_time_limit_ends_the_call_and_the_next_one_continues(make_prepared, workspace):
    data, events = make_prepared(rows=300), list[Event]()
    study = tune_on(data, a_config(minutes=1e-9), workspace, emit=events.append).artifact
    assert study.manifest["trials"]["finished"] == 1
    assert said(events)[-1] == "1e-09 minutes are over; the same command continues the search"
    more = tune_on(data, a_config(), workspace)
    assert more.artifact == study
    assert more.artifact.manifest["trials"]["finished"] == 2


def test_model_has_a_default_search_space(make_prepared, workspace):
    config = a_config(train={"epochs": 1}).model_copy(update={"tune": TuneConfig(trials=2)})
    study = tune_on(make_prepared(rows=300), config, workspace).artifact
    assert list(study.manifest["space"]) == ["train.learning_rate", "model.dropout", "model.embedding_dropout"]
    first, second = sorted(ranking(study), key=lambda entry: entry["trial"])
    assert first["changes"] == {"model.dropout": 0.2, "model.embedding_dropout": 0.3}  # 1e-6 is outside
    assert second["changes"].keys() == study.manifest["space"].keys()


@pytest.mark.parametrize("name", sorted(MODELS.keys() - {"two-stage"}))
def test_default_search_space_is_valid(name):
    space = {
        key: values.model_dump(exclude_defaults=True) for key, values in search_space(model_config_type(name)).items()
    }
    assert space
    sections = a_config().model_dump(mode="json", include={"dataset", "features"})
    found = from_values({**sections, "model": {"name": name}, "tune": {"space": space}})
    assert found.tune is not None


def test_without_a_space_it_says_what_to_write(make_prepared, workspace):
    config = a_config().model_copy(update={"tune": None, "model": ModelConfig.model_validate({"name": "two-stage"})})
    with pytest.raises(ConfigError, match="two-stage has no default search space") as caught:
        tune_on(make_prepared(rows=300), config, workspace)
    assert "space" in str(caught.value.hint)


def test_without_valid_rows_there_is_nothing_to_compare_by(make_prepared, workspace, tmp_path):
    data = make_prepared(rows=300)
    reseal(data, rows={"train": data.rows("train")})
    for split, hint in (
        ({"method": "random"}, "split.valid=0.1 and run recsys etl CONFIG"),
        ({"method": "files"}, "set split.valid to it and run recsys etl CONFIG"),
    ):
        config = RunConfig.model_validate({**a_config().model_dump(), "split": split})
        with pytest.raises(DataError, match="no valid split to compare trials") as caught:
            tune_on(data, config, workspace)
        assert hint in str(caught.value.hint)


def test_without_optuna_it_says_what_to_install(make_prepared, workspace, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.delitem(sys.modules, "recsys_cli.tuning.study", raising=False)
    with pytest.raises(MissingExtraError, match="'tune' extra") as caught:
        tune_on(make_prepared(rows=300), a_config(), workspace)
    assert caught.value.hint == "pip install 'recsys-cli[tune]'"


# -- interrupts, and several processes --------------------------------------------------------------------------------


def breaks_off(error: BaseException, *, step: int) -> Callable[[Event], None]:
    """Raise an error in a training step, counted over all trials."""
    seen = 0

    def emit(event: Event) -> None:
        nonlocal seen
        seen += isinstance(event, Progress) and event.task.startswith("train")
        if seen == step:
            raise error

    return emit


def test_a_killed_study_goes_on_to_the_same_trials(make_prepared, workspace, tmp_path):
    """8 steps per epoch, 24 per trial: killed in the second epoch of the third trial, it resumes after the first."""
    data, config = make_prepared(), a_config(RANGE)
    whole = tune_on(data, config, workspace).artifact
    broken = Workspace(tmp_path / "broken")
    assert stopped_in(2 * 24 + 12, signal.SIGKILL, tune_on, data, config, broken) == -signal.SIGKILL
    (left,) = (run for run in broken.runs() if not run.exists)
    events: list[Event] = []
    study = tune_on(data, config, broken, emit=events.append).artifact
    assert f"resuming {left.folder.name} at step 9" in said(events)
    assert next(text for text in said(events) if text.startswith("trial")).startswith("trial 3 of 4: ")
    assert tried(study) == tried(whole)
    assert [run.exists for run in broken.runs()] == [True]


class Killed(BaseException):
    """Exits like a killed process, without any message."""


def test_a_trial_that_is_interrupted_often_goes_on_and_one_that_is_killed_often_is_failed(
    make_prepared, workspace, tmp_path
):
    """Like a kill for lack of memory."""
    data, config = make_prepared(), a_config(RANGE, trials=2, train={"epochs": 1})
    for _ in range(4):
        with pytest.raises(KeyboardInterrupt):
            tune_on(data, config, workspace, emit=breaks_off(KeyboardInterrupt(), step=2))
    assert [state for _, state, *_ in tried(tune_on(data, config, workspace).artifact)] == ["finished", "finished"]
    other = Workspace(tmp_path / "other")
    for _ in range(3):
        with pytest.raises(Killed):
            tune_on(data, config, other, emit=breaks_off(Killed(), step=2))
    study = tune_on(data, config, other).artifact
    assert [state for _, state, *_ in tried(study)] == ["failed", "finished"]
    (message,) = [entry["message"] for entry in ranking(study) if entry["trial"] == 1]
    assert "its process was killed 3 times" in message


def test_the_unfinished_run_of_a_trial_is_removed_unless_another_process_trains_it(make_prepared, workspace):
    """A second process with the same values waits for the lock, and begins its run as soon as the first trial is pruned."""
    data, config = make_prepared(), a_config(trials=1)
    key = run_key(config, data)
    left = workspace.new_run("mlp", key)
    left.folder.mkdir(parents=True)
    left.config.write_text(dump(config))
    trial = Trial(1, "pruned", {}, notes={"since": left.folder.name})
    with workspace.lock(train_lock(key)):
        remove_unfinished(workspace, key, trial)
        assert left.folder.is_dir()
    remove_unfinished(workspace, key, trial)
    assert not left.folder.exists()


def test_the_run_of_a_trial_that_is_being_evaluated_is_kept(make_prepared, workspace):
    """The first trial has the rate of the config, which learns nothing, so the others are better."""
    data, locks, first = make_prepared(), ExitStack(), []

    def evaluate(event):
        if isinstance(event, Message) and event.text.startswith("trial 1 finished"):
            first.extend(workspace.runs())
            locks.enter_context(workspace.lock(run_lock(first[0])))

    with locks:
        study = tune_on(data, a_config(trials=3), workspace, emit=evaluate).artifact
    assert next(entry["trial"] for entry in ranking(study)) != 1
    assert first[0].exists
    assert len(workspace.runs()) == 2


def test_a_line_that_was_cut_off_is_forgotten(make_prepared, workspace):
    data = make_prepared()
    study = tune_on(data, a_config(RANGE, trials=1, train={"epochs": 1}), workspace).artifact
    with study.journal.open("a") as file:
        file.write('{"op_code": 4, "trial_')
    tune_on(data, a_config(RANGE, trials=2, train={"epochs": 1}), workspace)
    assert [state for _, state, *_ in tried(study)] == ["finished", "finished"]


def test_two_processes_share_a_study(make_prepared, workspace):
    data, config = make_prepared(), a_config(RANGE, trials=6, train={"epochs": 1})
    other = FORKS.Process(target=tune_on, args=(data, config, workspace))
    other.start()
    tune_on(data, config, workspace)
    other.join()
    assert other.exitcode == 0
    study = tune_on(data, config, workspace)
    assert study.up_to_date
    assert [state for _, state, *_ in tried(study.artifact)] == ["finished"] * 6
    assert len(workspace.runs()) == 1


def test_a_study_that_is_at_work_is_not_begun_anew(make_prepared, workspace):
    data, config = make_prepared(), a_config(trials=1)

    def emit(event):
        if isinstance(event, Progress) and event.unit == "rows":
            with pytest.raises(LockedError, match="works on tune-"):
                tune_on(data, config, workspace, force=True)

    assert tune_on(data, config, workspace, emit=emit).artifact.exists
