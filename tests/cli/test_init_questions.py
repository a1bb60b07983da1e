"""Questions of `recsys init` in a terminal, and none without one or with --yes."""

import os
import pty
import select
import subprocess
import time
from pathlib import Path

import pytest

from recsys_cli.config import load
from tests.forked import Forked, program

LINE = ("init", "t.csv")


@pytest.fixture(autouse=True)
def table(tmp_path, monkeypatch):
    """A table with columns of unknown meaning."""
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text(
        "a0,b0,c0,rating\n" + "".join(f"x{k % 20},y{k * 7 % 15},z{k % 9},{1 + k % 5}\n" for k in range(100))
    )


def dialog(*answers: str, more: tuple[str, ...] = ()) -> tuple[int, str]:
    """Run init in a terminal, and type an answer at each prompt; return exit code and output."""
    master, terminal = pty.openpty()
    process = Forked([*LINE, *more], streams=(terminal,) * 3)
    os.close(terminal)
    shown, left, end = "", list(answers), time.monotonic() + 120
    while time.monotonic() < end:
        if select.select([master], [], [], 1)[0]:
            try:
                data = os.read(master, 4096)
            except OSError:  # the terminal is closed
                break
            if not data:
                break
            shown += data.decode()
            if left and shown.rstrip().endswith(":"):
                os.write(master, left.pop(0).encode() + b"\n")
                shown += "\n"
        elif process.poll() is not None:
            break
    os.close(master)
    return process.wait(timeout=60), shown


def test_a_terminal_is_asked_for_each_unclear_role():
    code, shown = dialog("none", "a0", "b0")
    assert code == 0, shown
    assert "Which column has the user?" in shown
    assert "a0: x0, x1, x2" in shown
    assert "Which column has the item?" in shown
    features = load(Path("t.yaml")).features
    assert (features.user, features.item) == ("a0", "b0")


def test_a_table_with_a_binary_column_and_numbers_is_asked_for_its_label():
    Path("t.csv").write_text("ctr,a,b,c\n" + "".join(f"{k % 2},0.{k},1.{k},2.{k}\n" for k in range(100)))
    code, shown = dialog("ctr")
    assert (code, "Which column has the label?" in shown, "the user?" in shown) == (0, True, False), shown
    assert load(Path("t.yaml")).features.label == "ctr"


def test_yes_asks_nothing_even_in_a_terminal():
    code, shown = dialog(more=("--yes",))
    assert code == 2
    assert "Which column" not in shown
    assert "set it with --user" in shown
    assert not Path("t.yaml").exists()


def test_without_a_terminal_the_error_names_the_options():
    done = subprocess.run([program(), *LINE], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "cannot guess the item column; set it with --item" in done.stderr
    assert not done.stdout
