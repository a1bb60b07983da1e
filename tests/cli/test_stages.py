"""The command layer calls the right stage with the right arguments, and shows its result."""

from pathlib import Path
from typing import Any

import pytest

from recsys_cli.cli.params import current_config
from recsys_cli.cli.session import Session
from recsys_cli.config import load
from recsys_cli.errors import MissingArtifactError
from recsys_cli.events import Message
from recsys_cli.stages import StageResult
from recsys_cli.workspace import RawData, Workspace


@pytest.fixture
def spy(monkeypatch):
    """Replace stages and record their calls."""
    calls: dict[str, Any] = {}

    def note(stage):
        def called(*args, **options):
            calls[stage] = (args, {name: value for name, value in options.items() if name != "emit"})
            raise KeyboardInterrupt  # after which the config stays the current one

        return called

    for stage in ("download", "etl", "train"):
        monkeypatch.setattr(f"recsys_cli.stages.{stage}.{stage}", note(stage))
    return calls


def test_download_passes_its_options_on(recsys, spy):
    answer = recsys(
        "download", "movielens-25m", "--from-file", "a.zip", "--mirror", "http://x", "--force", "-w", "there"
    )
    assert answer.code == 130
    (dataset, workspace), options = spy["download"]
    assert (dataset.name, dataset.options, workspace.root) == ("movielens-25m", {}, Path("there"))
    assert options == {"from_file": Path("a.zip"), "mirror": "http://x", "force": True}


def test_download_of_a_config_takes_its_dataset(recsys, spy, labelled):
    recsys("download", "ratings.yaml")
    (dataset, _), _ = spy["download"]
    assert dataset.name == "files"
    assert dataset.options == {"interactions": "ratings.csv"}


@pytest.mark.parametrize(
    ("line", "epochs", "options"),
    [
        (["train", "ratings.yaml"], 20, {"resume": False, "force": False}),
        (["train", "ratings.yaml", "--epochs", "3", "--resume"], 3, {"resume": True, "force": False}),
        (["train", "ratings.yaml", "train.epochs=4", "--force"], 4, {"resume": False, "force": True}),
        (["train", "train.epochs=5"], 5, {"resume": False, "force": False}),
        (["train", "--epochs", "6"], 6, {"resume": False, "force": False}),
    ],
)
def test_train_reads_its_line(recsys, spy, prepared, line, epochs, options):
    assert recsys(*line).code == 130
    (config, workspace), passed = spy["train"]
    assert config.train.epochs == epochs
    assert workspace.root == Path("workspace")
    assert passed == options


def test_train_takes_the_number_of_processes_from_its_line(recsys, spy, labelled):
    assert recsys("train", "ratings.yaml", "--devices", "2").code == 130
    assert spy["train"][0][0].train.devices == 2


def test_of_several_processes_the_first_alone_prints_and_writes(recsys, labelled, monkeypatch):
    def stage(config, workspace, **options):
        options["emit"](Message("at work"))
        return StageResult(RawData(workspace.root), up_to_date=True)

    monkeypatch.setattr("recsys_cli.stages.train.train", stage)
    monkeypatch.setattr("recsys_cli.cli.train.result", lambda made: {"run": "x"})
    monkeypatch.setattr("recsys_cli.cli.train.draw", lambda console, result: console.print("made"))
    second = recsys("train", "ratings.yaml", RANK="1", WORLD_SIZE="2")
    assert (second.code, second.out, second.err) == (0, "", "")
    assert not Path("workspace/current.yaml").exists()
    first = recsys("train", "ratings.yaml", RANK="0", WORLD_SIZE="2")
    assert (first.code, first.out, first.err) == (0, "made\n", "at work\n")
    assert Path("workspace/current.yaml").exists()


def test_etl_without_a_config_takes_the_current_one(recsys, spy, labelled):
    recsys("etl", "ratings.yaml", "etl.layout=flat")
    recsys("etl", "--force")
    (config, _), options = spy["etl"]
    assert config.etl.layout == "flat"
    assert options == {"force": True}


def test_the_workspace_comes_from_the_environment(recsys, spy):
    recsys("download", "movielens-25m", RECSYS_WORKSPACE="elsewhere")
    (_, workspace), _ = spy["download"]
    assert workspace.root == Path("elsewhere")


@pytest.mark.parametrize("command", ["etl", "train", "evaluate", "run", "validate", "config"])
def test_without_any_config_the_command_says_where_to_get_one(recsys, command):
    answer = recsys(command)
    assert answer.code == 3
    assert "no config given, and workspace has no current config" in answer.err
    assert "recsys ls configs" in answer.err


def test_evaluate_and_report_of_a_missing_run(recsys):
    for command, what in (("evaluate", "run"), ("report", "run or prepared data")):
        answer = recsys(command, "2026-mlp")
        assert answer.code == 3
        assert f"no {what} '2026-mlp' in workspace; there are: none yet" in answer.err


def test_quiet_prints_errors_only(recsys, labelled):
    answer = recsys("-q", "etl", "ratings.yaml")
    assert (answer.code, answer.out, answer.err) == (0, "", "")


def test_json_is_one_object_on_stdout(recsys, ratings):
    assert recsys("init", ratings, "--task", "label", "--json").json["columns"]["user"] == "user_id"
    found = recsys("etl", "ratings.yaml", "--json").json
    assert found["up_to_date"] is False
    assert sum(found["rows"].values()) == 600
    assert found["vocabularies"] == {"user_id": 30, "item_id": 20}
    assert recsys("etl", "--json").json["up_to_date"] is True


def test_download_is_up_to_date_the_second_time_and_again_when_a_file_is_gone(recsys):
    assert recsys("download", "synthetic-small", "--json").json["up_to_date"] is False
    again = recsys("download", "synthetic-small")
    assert "synthetic-small is up to date: workspace/raw/synthetic-small" in again.out
    assert "next: recsys etl CONFIG" in again.out
    Path("workspace/raw/synthetic-small/ratings.csv").unlink()
    assert recsys("download", "synthetic-small", "--json").json["up_to_date"] is False


def test_failed_download_leaves_no_dataset(recsys, tmp_path):
    (tmp_path / "a.zip").write_text("no archive")
    assert recsys("download", "movielens-100k", "--from-file", "a.zip").code == 4
    assert not Workspace(Path("workspace")).raw("movielens-100k").exists


def test_failed_config_does_not_become_current(recsys, labelled):
    assert recsys("etl", "ratings.yaml", "dataset.interactions=none.csv").code == 4
    assert not Path("workspace/current.yaml").exists()
    assert recsys("etl", "ratings.yaml").code == 0
    before = Path("workspace/current.yaml").read_text()
    assert recsys("etl", "ratings.yaml", "dataset.interactions=none.csv").code == 4
    assert Path("workspace/current.yaml").read_text() == before


def test_two_commands_may_fail_at_once(recsys, labelled):
    """Both wrote the current config of a new workspace, and the first one to fail removed it."""
    session = Session("new", quiet=True)

    def fail_second():
        with current_config(session, ["ratings.yaml"]), session.working("train") as emit:
            emit(Message("at work"))
            session.workspace.current.unlink()
            raise MissingArtifactError("the data is not prepared")

    with pytest.raises(MissingArtifactError, match="not prepared"):
        fail_second()


def test_a_command_without_work_does_not_become_current(recsys, labelled):
    """Two commands fail side by side: one reads the config of the workspace between the start and the end of the other."""
    sessions = [Session("new", quiet=True) for _ in range(2)]
    running = [
        current_config(one, ["ratings.yaml", f"train.epochs={epochs}"]) for epochs, one in enumerate(sessions, 5)
    ]
    for one in running:
        one.__enter__()
    for one in running:
        with pytest.raises(MissingArtifactError):
            one.gen.throw(MissingArtifactError("the data is not prepared"))
    assert not Path("new/current.yaml").exists()


@pytest.mark.parametrize("has_config", [True, False])
def test_of_two_failing_commands_neither_stays_current(recsys, labelled, has_config):
    """The second one wrote over the first one, and restored its config after both had failed."""
    if has_config:
        with current_config(Session("new"), ["ratings.yaml", "train.epochs=4"]):
            pass
    sessions = [Session("new", quiet=True) for _ in range(3)]
    running = [
        current_config(one, ["ratings.yaml", f"train.epochs={epochs}"]) for epochs, one in enumerate(sessions, 5)
    ]
    for one, session in zip(running, sessions, strict=True):
        one.__enter__()
        session.on_work()
    for one in running:
        with pytest.raises(MissingArtifactError):
            one.gen.throw(MissingArtifactError("the data is not prepared"))
    if has_config:
        assert load(Path("new/current.yaml")).train.epochs == 4
    else:
        assert not Path("new/current.yaml").exists()
    assert list(Path("new").rglob("failed-*")) == []


@pytest.mark.parametrize("first_writes", [True, False])
def test_a_failing_command_keeps_the_config_of_a_later_one(recsys, labelled, first_writes):
    failing, lasting = (Session("new", quiet=True) for _ in range(2))

    def fail_beside_another():
        with current_config(failing, ["ratings.yaml", "train.epochs=5"]):
            if first_writes:
                with failing.working("train") as emit:
                    emit(Message("at work"))
                assert load(Path("new/current.yaml")).train.epochs == 5  # a kill now leaves it for --resume
            with current_config(lasting, ["ratings.yaml", "train.epochs=6"]), lasting.working("train") as emit:
                emit(Message("at work"))
            raise MissingArtifactError("the data is not prepared")

    with pytest.raises(MissingArtifactError):
        fail_beside_another()
    assert load(Path("new/current.yaml")).train.epochs == 6
