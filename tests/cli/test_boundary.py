"""Every failure ends with one message, a hint and its exit code."""

import json
import os
import signal
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path

import pytest

from recsys_cli import errors
from recsys_cli.cli import session as sessions
from recsys_cli.cli.boundary import hoist
from recsys_cli.cli.group import PLACES
from tests.forked import program


def fail_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every command that reads the workspace fail."""

    def broken(self: sessions.Session) -> None:
        raise error

    monkeypatch.setattr(sessions.Session, "workspace", property(broken))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.RecsysError("what", hint="next"), 1),
        (errors.ConfigError("what", hint="next"), 2),
        (errors.MissingArtifactError("what", hint="next"), 3),
        (errors.DataError("what", hint="next"), 4),
        (errors.MissingExtraError("what", hint="next"), 5),
        (errors.TrainingError("what", hint="next"), 6),
    ],
)
def test_an_error_is_a_message_a_hint_and_its_exit_code(recsys, monkeypatch, error, code):
    fail_with(error, monkeypatch)
    answer = recsys("status")
    assert (answer.code, answer.out, answer.err) == (code, "", "error: what\nhint: next\n")
    as_json = recsys("status", "--json")
    assert as_json.code == code
    assert as_json.json == {"error": {"message": "what", "hint": "next", "exit_code": code}}
    assert as_json.err == ""


def test_an_unexpected_error_is_short_and_says_how_to_see_more(recsys, monkeypatch):
    fail_with(ZeroDivisionError("division by zero"), monkeypatch)
    answer = recsys("status")
    assert answer.code == 1
    assert answer.err.startswith("error: unexpected ZeroDivisionError: division by zero\nhint: ")
    assert "--verbose" in answer.err
    assert "Traceback" not in answer.err
    assert "Traceback" in recsys("status", "-v").err
    assert recsys("status", "--json").json["error"]["exit_code"] == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["trian"], "No such command 'trian'. Did you mean 'train'?"),
        (["train", "--epoch", "3"], "No such option: --epoch (Possible options: --epochs)"),
        (["train", "--epochs", "many"], "Invalid value for '--epochs'"),
        (["download"], "Missing argument 'DATASET'."),
        (["ls", "opps"], "'opps' is not one of 'datasets', 'splits', 'ops'"),
        (["status", "more"], "unexpected extra argument"),
    ],
)
def test_invalid_line_is_exit_2(recsys, line, message):
    answer = recsys(*line)
    assert answer.code == 2
    assert message in answer.err
    assert "\nhint: recsys" in answer.err
    assert "Value error" not in answer.err
    assert message in recsys("--json", *line).json["error"]["message"]


@pytest.mark.parametrize(
    ("line", "stage", "hint"),
    [
        ("train", "train", "continue with: recsys train --resume\n"),
        ("run", "train", "continue with: recsys run\n"),
        ("etl", "etl", "run the same command again"),
    ],
)
def test_an_interrupt_says_how_to_go_on(recsys, monkeypatch, labelled, line, stage, hint):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"recsys_cli.stages.{stage}.{stage}", stop)
    answer = recsys(line, "ratings.yaml")
    assert answer.code == 130
    assert "error: interrupted" in answer.err
    assert hint in answer.err


def test_the_config_of_an_interrupted_stage_is_current(recsys, monkeypatch, labelled):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("recsys_cli.stages.train.train", stop)
    assert recsys("train", "ratings.yaml", "train.epochs=7").code == 130
    assert recsys("config", "--json").json["train"]["epochs"] == 7


@pytest.mark.parametrize(
    ("line", "hoisted"),
    [
        (["etl", "x.yaml", "--json", "-q"], ["--json", "-q", "etl", "x.yaml"]),
        (["etl", "-w", "there", "x.yaml"], ["-w", "there", "etl", "x.yaml"]),
        (["etl", "--workspace=there"], ["--workspace=there", "etl"]),
        (["ls", "--", "--json"], ["ls", "--", "--json"]),
        (["etl", "-w"], ["-w", "etl"]),
        (["init", "t.csv", "--output", "c.yaml"], ["init", "t.csv", "--out", "c.yaml"]),
        (["etl", "--output=x"], ["etl", "--out=x"]),
    ],
)
def test_hoist_moves_global_options_to_the_front_and_knows_the_earlier_out(line, hoisted):
    assert hoist(line) == hoisted


def test_output_fits_the_encoding_of_the_terminal(tmp_path):
    line = [sys.executable, "-m", "recsys_cli", "ls", "ops", "Categorify"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "Categorify" in done.stdout


@pytest.mark.parametrize(("line", "code"), [(["ls", "models"], 0), (["train"], 3)])
def test_closed_outputs_change_nothing(tmp_path, line, code):
    def close():
        os.closerange(0, 3)

    done = subprocess.run([sys.executable, "-m", "recsys_cli", *line], cwd=tmp_path, check=False, preexec_fn=close)
    assert done.returncode == code
    assert list(tmp_path.rglob("*")) == []


def test_a_name_that_is_no_utf8_is_reported(tmp_path):
    for command in ("etl", "init", "serve"):
        line = [program(), command, os.fsdecode(b"\xff.csv")]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode in {2, 3}, done.stderr
        assert "unexpected" not in done.stderr


def test_long_words_are_cut(recsys, labelled):
    for line in (
        ["etl", "x" * 9_000], ["train", "--continue", "x" * 9_000], ["etl", "ratings.yaml", f"dataset.interactions={'x' * 300}"],
        ["ls", "models", "x" * 9_000],
    ):  # fmt: skip
        answer = recsys(*line)
        assert answer.code in {2, 3}
        assert len(answer.err) < 2_000
    assert not Path("workspace/current.yaml").exists()


def test_hints_name_the_workspace_of_the_line(recsys, labelled, monkeypatch):
    for where in (["-w", "a b"], ["--workspace=a b"]):
        assert "recsys -w 'a b' run ratings.yaml`; `recsys ls configs`" in recsys("train", *where).err
        assert "hint: recsys -w 'a b' etl ratings.yaml" in recsys("train", "ratings.yaml", *where).err
    assert recsys("-w", "a b", "etl", "ratings.yaml", "--json").json["next"] == "recsys -w 'a b' train"
    assert recsys("-w", "a b", "status", "--json").json["current"]["next"] == "recsys -w 'a b' train"
    assert "hint: recsys etl ratings.yaml" in recsys("train", "ratings.yaml", RECSYS_WORKSPACE="there").err
    monkeypatch.setitem(PLACES, "rows", "rows")
    located = sessions.Session("a", names_root=True).located
    assert located("`recsys rows`, `recsys ls`") == "`recsys -w a rows`, `recsys ls`"


def test_closed_pipe_is_no_error(tmp_path):
    program = "from recsys_cli.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", program, "ls", "ops", "Categorify"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 128 + signal.SIGPIPE


BY_SIGNAL = pytest.mark.parametrize(("number", "code"), [("SIGINT", 130), ("SIGTERM", 143)])


@BY_SIGNAL
def test_a_signal_while_the_program_is_loading_is_an_interrupt(tmp_path, number, code):
    program = f"""
import os, signal, sys

class Interrupts:
    def find_spec(self, name, *_):
        if name == "typer":
            os.kill(os.getpid(), signal.{number})

sys.meta_path.insert(0, Interrupts())
from recsys_cli.__main__ import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, "ls"], capture_output=True, text=True, cwd=tmp_path, check=False,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "error: interrupted\n")
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"recsys": "recsys_cli.__main__:main"}


@BY_SIGNAL
def test_a_signal_on_the_program_is_an_interrupt(tmp_path, number, code):
    program = f"""
import os, signal, time
from recsys_cli.__main__ import main
import recsys_cli.cli.doctor as doctor

def examine():
    try:
        os.kill(os.getpid(), signal.{number})
        time.sleep(10)
    except KeyboardInterrupt:
        raise KeyboardInterrupt from None  # as Ray does

doctor.examine = examine
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, "doctor", "--json"], capture_output=True, text=True, cwd=tmp_path, check=False,
        # A shell without job control starts what runs in the background, such as these tests, deaf to Ctrl-C.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert json.loads(done.stdout)["error"]["message"] == "interrupted"


def test_install_command_is_for_the_running_python(recsys, monkeypatch, tmp_path):
    fail_with(errors.MissingExtraError.for_extra("tune", what="it"), monkeypatch)
    monkeypatch.setenv("PATH", str(tmp_path))
    (hint,) = (line for line in recsys("status").err.splitlines() if line.startswith("hint"))
    assert hint == f"hint: {sys.executable} -m pip install 'recsys-cli[tune]'"
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (tmp_path / "pip").write_text("")
    (tmp_path / "pip").chmod(0o755)
    assert recsys("status").err.endswith("hint: pip install 'recsys-cli[tune]'\n")


@pytest.mark.parametrize("closed", [">&-", "<&- >&-"])
def test_a_closed_stream_is_the_null_device(closed, tmp_path):
    line = f"exec {sys.executable} -m recsys_cli -w {tmp_path} ls models {closed}"
    done = subprocess.run(["bash", "-c", line], stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
