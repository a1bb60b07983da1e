"""The workspace: atomic artifacts, locks and lookup by name."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from recsys_cli.errors import DataError, LockedError, MissingArtifactError
from recsys_cli.workspace import Workspace, key_of, write_manifest, write_text


def test_create_makes_a_complete_artifact(workspace: Workspace) -> None:
    data = workspace.data("0123456789abcdef-rest")
    manifest = {"key": "k"}
    with workspace.create(data, manifest) as folder:
        assert not data.exists
        (folder / "x").write_text("1")
        manifest["rows"] = {"train": 3}
    assert data.exists
    assert (data.key, data.rows("train"), data.rows("test")) == ("k", 3, 0)
    assert data.manifest["kind"] == "PreparedData"
    assert (data.folder / "x").read_text() == "1"


def test_create_replaces_an_old_artifact_completely_or_not_at_all(workspace: Workspace) -> None:
    data = workspace.data("k")
    for key in ("old", "new"):
        with workspace.create(data, {"key": key, "rows": {}}) as folder:
            (folder / key).touch()
    with pytest.raises(ZeroDivisionError), workspace.create(data, {"key": "broken", "rows": {}}):
        raise ZeroDivisionError
    assert data.key == "new"
    assert {path.name for path in data.folder.iterdir()} == {"new", "manifest.json"}
    assert list((workspace.root / ".scratch").iterdir()) == []


def test_scratch_of_a_living_process_stays(workspace: Workspace) -> None:
    program = """
        import sys
        from pathlib import Path
        from recsys_cli.workspace import Workspace
        with Workspace(Path(sys.argv[1])).scratch() as folder:
            print(folder, flush=True)
            sys.stdin.read()
    """
    other = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), str(workspace.root)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with other:
        assert other.stdin is not None
        assert other.stdout is not None
        theirs = Path(other.stdout.readline().strip())
        with workspace.scratch(), workspace.scratch() as mine:
            assert theirs.is_dir()
            assert mine.is_dir()
        other.stdin.close()
    assert list((workspace.root / ".scratch").iterdir()) == []
    assert list((workspace.root / ".locks").iterdir()) == []


def test_write_text_is_atomic(tmp_path: Path) -> None:
    path = tmp_path / "a" / "x.yaml"
    write_text(path, "1")
    write_text(path, "2")
    assert path.read_text() == "2"
    assert [p.name for p in path.parent.iterdir()] == ["x.yaml"]


def test_key_depends_on_content_and_not_on_order() -> None:
    assert key_of({"a": 1, "b": 2}) == key_of({"b": 2, "a": 1})
    assert key_of({"a": 1}) != key_of({"a": 2})
    assert key_of("a", "b") != key_of("ab")


def test_lock_times_out(workspace: Workspace) -> None:
    with (
        workspace.lock("etl"),
        pytest.raises(LockedError, match=rf"process {os.getpid()} on {socket.gethostname()} works on etl") as found,
        Workspace(workspace.root).lock("etl", timeout=0.05),
    ):
        pass
    assert "etl.lock" in str(found.value.hint)
    assert found.value.exit_code == 2
    with workspace.lock("etl"):  # free again
        pass


def test_run_is_found_by_prefix_suffix_or_model(workspace: Workspace) -> None:
    for name in ("20260101T000000-mlp-aaaa", "20260102T000000-mlp-bbbb", "20250102T000000-ease-cccc"):
        write_text(workspace.root / "runs" / name / "config.yaml", "")
    assert workspace.run("bbbb").folder.name == "20260102T000000-mlp-bbbb"
    assert workspace.run("ease").folder.name == "20250102T000000-ease-cccc"
    assert workspace.run("mlp").folder.name == "20260102T000000-mlp-bbbb"
    write_manifest(workspace.root / "runs" / "20260101T000000-mlp-aaaa", "TrainedRun", {"key": "aaaa"})
    assert workspace.run("mlp").folder.name == "20260101T000000-mlp-aaaa"  # the later one is not finished
    with pytest.raises(MissingArtifactError, match="2 runs match '2026'"):
        workspace.run("2026")
    with pytest.raises(MissingArtifactError, match=r"no run 'x'.*there are: .*aaaa, .*bbbb"):
        workspace.run("x")
    with pytest.raises(MissingArtifactError, match=r"no run 'eas' in .* \(did you mean ease\?\); there are: "):
        workspace.run("eas")


def test_only_the_last_runs_are_listed(workspace: Workspace) -> None:
    for number in range(20):
        write_text(workspace.root / "runs" / f"202601{number:02}T000000-mlp-aaaa" / "config.yaml", "")
    with pytest.raises(MissingArtifactError, match=r"there are: 20260112T.* 20260119T000000-mlp-aaaa and 12 more$"):
        workspace.run("x")


def test_manifest_that_is_damaged_or_of_another_format_is_named(workspace: Workspace) -> None:
    data = workspace.data("k")
    with workspace.create(data, {"key": "k", "rows": {}}):
        pass
    write_text(data.folder / "manifest.json", json.dumps({**data.manifest, "format": 6, "recsys": "0.0.9"}))
    with pytest.raises(DataError, match="data/k has artifact format 6; "):
        _ = data.manifest
    assert data.damage is not None
    assert not data.is_made("k")
    write_text(data.folder / "manifest.json", "{")
    with pytest.raises(DataError, match=r"data/k/manifest.json is damaged: "):
        _ = data.manifest
