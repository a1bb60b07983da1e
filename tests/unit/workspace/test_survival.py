"""Kills, errors and full disks while a workspace is written: a complete version stays."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from recsys_cli.errors import ConfigError, DataError, DiskFullError, MissingArtifactError
from recsys_cli.workspace import Workspace, locks, read_json, replacing, replacing_folder, write_json, write_text
from recsys_cli.workspace.files import checksum_of, is_disk_full

KILLED_BETWEEN_RENAMES = """
    import os, signal, sys
    from pathlib import Path
    from recsys_cli.workspace import Workspace
    workspace = Workspace(Path(sys.argv[1]))
    data = workspace.data("k")
    with workspace.create(data, {"key": "old", "rows": {}}):
        pass
    real, calls = Path.replace, []
    def replace(self, target):
        made = real(self, target)
        if Path(target).name == "old":
            os.kill(os.getpid(), signal.SIGKILL)
        return made
    Path.replace = replace
    with workspace.create(data, {"key": "new", "rows": {}}):
        pass
"""


def test_a_kill_between_the_two_renames_loses_no_version(workspace: Workspace) -> None:
    program = textwrap.dedent(KILLED_BETWEEN_RENAMES)
    killed = subprocess.run([sys.executable, "-c", program, str(workspace.root)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not workspace.data("k").exists
    data = Workspace(workspace.root).data("k")
    assert data.key == "new"
    assert list((workspace.root / ".scratch").iterdir()) == []


KILLED_IN_A_WRITE = """
    import os, signal, sys, time
    from pathlib import Path
    from recsys_cli.workspace import replacing
    with replacing(Path(sys.argv[1])) as partial:
        partial.write_text("half")
        print(partial, flush=True)
        time.sleep(60)
"""


@pytest.mark.parametrize("name", ["current.yaml", "runs/one/evaluation.json", "data/one/[1].json"])
@pytest.mark.parametrize("opened", [True, False])
def test_the_next_command_removes_what_a_killed_write_left_and_nothing_of_a_living_one(
    workspace: Workspace, name: str, opened: bool
) -> None:
    path = workspace.root / name
    program = [sys.executable, "-c", textwrap.dedent(KILLED_IN_A_WRITE), str(path)]
    writers = [subprocess.Popen(program, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    with writers[0] as dead, writers[1] as living:
        files = [Path(process.stdout.readline().strip()) for process in (dead, living)]
        dead.kill()
        dead.wait()
        for file in files:
            os.utime(file, (0, 0))
        if opened:
            Workspace(workspace.root)
        else:
            write_text(path, "whole")
        assert [file.exists() for file in files] == [False, True]
        living.kill()


def test_a_young_file_is_left_until_its_writer_has_its_lock(workspace: Workspace) -> None:
    young = workspace.root / ".current.yaml.0.partial"
    young.parent.mkdir(exist_ok=True)
    young.touch()
    Workspace(workspace.root)
    assert young.exists()


def test_an_error_between_the_two_renames_restores_a_version(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = workspace.data("k")
    with workspace.create(data, {"key": "old", "rows": {}}):
        pass
    real = Path.replace

    def replace(self: Path, target: Path) -> Path:
        if self.name == "artifact" and not (self.parent / "seen").exists():
            (self.parent / "seen").touch()
            raise OSError("the disk is gone for a moment")
        return real(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(OSError, match="for a moment"), workspace.create(data, {"key": "new", "rows": {}}):
        pass
    assert data.key == "new"


@pytest.mark.parametrize("process", [1, os.getpid()], ids=["dead", "the same id"])
def test_opening_a_workspace_or_scratch_removes_leftovers_of_dead_processes(workspace: Workspace, process: int) -> None:
    left = workspace.root / ".scratch" / f"{process}-abc"
    for open_it in (lambda: Workspace(workspace.root), lambda: workspace.scratch().__enter__()):
        left.mkdir(parents=True)
        (left / "rows.arrow").write_bytes(b"x")
        open_it()
        assert not left.exists()


def test_a_lock_names_its_holder_while_it_is_held(workspace: Workspace) -> None:
    assert locks.holder_of(workspace.root, "etl") is None
    with workspace.lock("etl"):
        holder = locks.holder_of(workspace.root, "etl")
        assert holder is not None
        assert holder.pid == os.getpid()
    assert locks.holder_of(workspace.root, "etl") is None


def test_a_changed_json_file_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"auc": 0.75, "rows": {"train": 3}, "k": (1, 2), "none": float("nan")})
    found = read_json(path, hint="redo", expected={"auc": float})
    assert (found["auc"], found["k"]) == (0.75, [1, 2])
    with pytest.raises(DataError, match="'rows' is of another type") as caught:
        read_json(path, hint="redo", expected={"rows": list})
    assert caught.value.hint == "redo"
    path.write_text(path.read_text().replace("0.75", "0.76"))
    with pytest.raises(DataError, match="does not match its checksum"):
        read_json(path, hint="redo")
    with pytest.raises(MissingArtifactError, match="is missing"):
        read_json(tmp_path / "y.json", hint="redo")


def test_a_key_of_files_is_the_crc_32(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"123456789")
    assert checksum_of(tmp_path / "x") == "cbf43926"  # the check value of CRC-32/ISO-HDLC


@pytest.fixture
def small_files() -> Iterator[None]:
    """Limit files to 64 KiB, to simulate a full disk or a quota."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("small_files")
def test_a_full_disk_is_named_with_path_and_free_space(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "report.html"
    with pytest.raises(DiskFullError, match=r"no space left to write .*runs/report\.html: .* of .* GiB are free"):
        write_text(path, "x" * 100_000)
    assert list(path.parent.iterdir()) == []


def test_a_full_disk_is_recognized_for_every_library(tmp_path: Path) -> None:
    safetensors = "Error while serializing: I/O error: No space left on device (os error 28)"
    assert is_disk_full(RuntimeError(safetensors))
    assert is_disk_full(OSError(28, "No space left on device"))
    assert not is_disk_full(RuntimeError("out of memory"))
    with pytest.raises(DiskFullError, match=r"last\.safetensors"), replacing(tmp_path / "last.safetensors"):
        raise RuntimeError(safetensors)


KILLED = """
    import os, shutil, signal, sys
    from pathlib import Path
    from recsys_cli.workspace import locks, replacing_folder
    target, kill_at, atomic = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "atomic"
    calls = []
    def step(real):
        def counted(*args, **kwargs):
            if len(calls) == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            calls.append(real)
            return real(*args, **kwargs)
        return counted
    locks.flush, shutil.rmtree, Path.replace = map(step, (locks.flush, shutil.rmtree, Path.replace))
    locks.exchange = step(locks.exchange if atomic else lambda one, other: False)
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
        locks._remove(tmp_path / ".bundle.partial")
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
    real = locks.exchange
    monkeypatch.setattr(locks, "flush", lambda path: done.append(path.name))
    monkeypatch.setattr(locks, "exchange", lambda one, other: bool(done.append("exchange")) or real(one, other))
    for text in ("old", "new"):
        done.clear()
        write(tmp_path / "bundle", text)
    assert sorted(done[:4]) == [".bundle.partial", "a", "b", "bundle"]
    assert done[4:] == ["exchange", tmp_path.name]


def test_a_pipe_or_device_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="pipe is no regular file"):
        write_text(tmp_path / "pipe", "text")
    assert (tmp_path / "pipe").is_fifo()
