"""Replacement of folders: one complete version at every moment, also after kills."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from recsys_cli.workspace import folders, replacing_folder

KILLED = """
    import os, shutil, signal, sys
    from pathlib import Path
    from recsys_cli.workspace import folders, replacing_folder
    target, kill_at, atomic = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "atomic"
    calls = []
    def step(real):
        def counted(*args, **kwargs):
            if len(calls) == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            calls.append(real)
            return real(*args, **kwargs)
        return counted
    folders.flush, shutil.rmtree, Path.replace = map(step, (folders.flush, shutil.rmtree, Path.replace))
    folders.exchange = step(folders.exchange if atomic else lambda one, other: False)
    with replacing_folder(target) as made:
        for name in "ab":
            (made / name).write_text("new")
"""
STEPS = {"atomic": 7, "renames": 9}
"""Flush of two files and two folders, the exchange, then two renames without an atomic one, a flush, the removal."""


def write(target: Path, text: str) -> None:
    with replacing_folder(target) as made:
        for name in "ab":
            (made / name).write_text(text)


def versions(target: Path) -> list[str]:
    return [(target / name).read_text() for name in "ab"]


@pytest.mark.parametrize(("how", "step"), [(how, step) for how, steps in STEPS.items() for step in range(steps)])
def test_a_kill_at_any_step_leaves_a_complete_version(how: str, step: int, tmp_path: Path) -> None:
    target = tmp_path / "bundle"
    write(target, "old")
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(KILLED), str(target), str(step), how], check=False)
    assert killed.returncode == -signal.SIGKILL
    if (how, step) == ("renames", 6):  # between the two renames
        assert not target.exists()
        folders._remove(tmp_path / ".bundle.partial")
    assert versions(target) in (["old"] * 2, ["new"] * 2)
    write(target, "next")
    assert versions(target) == ["next"] * 2
    assert list(tmp_path.iterdir()) == [target]


def test_no_further_step(tmp_path: Path) -> None:
    for how, steps in STEPS.items():
        write(tmp_path / how, "old")
        arguments = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path / how), str(steps), how]
        assert subprocess.run(arguments, check=False).returncode == 0
        assert versions(tmp_path / how) == ["new"] * 2


def test_an_error_keeps_the_old_version(tmp_path: Path) -> None:
    target = tmp_path / "bundle"
    write(target, "old")
    with pytest.raises(FileNotFoundError), replacing_folder(target) as made:
        (made / "no" / "a").write_text("new")
    assert versions(target) == ["old"] * 2
    assert list(tmp_path.iterdir()) == [target]


def test_every_file_is_flushed_before_the_replacement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    real = folders.exchange
    monkeypatch.setattr(folders, "flush", lambda path: done.append(path.name))
    monkeypatch.setattr(folders, "exchange", lambda one, other: bool(done.append("exchange")) or real(one, other))
    for text in ("old", "new"):
        done.clear()
        write(tmp_path / "bundle", text)
    assert sorted(done[:4]) == [".bundle.partial", "a", "b", "bundle"]
    assert done[4:] == ["exchange", tmp_path.name]
