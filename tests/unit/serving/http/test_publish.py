"""Publications: versions, deltas between them, and servers that follow."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import recsys_cli as recsys
from recsys_cli.cli import app
from recsys_cli.errors import ConfigError, DataError, MissingArtifactError, RecsysError
from recsys_cli.serving.bundle import load_bundle
from recsys_cli.serving.http.fleet import warm
from recsys_cli.stages.publish import KEPT, Publication
from recsys_cli.workspace import delta as deltas
from recsys_cli.workspace.delta import Version, read_delta, write_delta
from tests.servers import Running, running, until

MakeRun = Callable[[str], recsys.TrainedRun]
Three = Callable[[Path], Publication]


@pytest.fixture(scope="session")
def published(
    make_run: MakeRun, served_workspace: recsys.Workspace, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Path], Publication]:
    """Return a function that copies a folder with the versions mf, fm and ease."""
    made = Publication(tmp_path_factory.mktemp("published") / "shop")
    for model in ("mf", "fm", "ease"):
        made.publish(make_run(model), served_workspace)
    return lambda folder: Publication(shutil.copytree(made.folder, folder, symlinks=True))


def tree(folder: Path) -> dict[str, bytes]:
    """Return the contents of all files and links of a folder, without locks."""
    found = (path for path in folder.rglob("*") if ".locks" not in path.parts)
    return {
        str(path.relative_to(folder)): bytes(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in found
        if not path.is_dir() or path.is_symlink()
    }


def behind(source: Publication, folder: Path, number: int) -> Publication:
    """Return a copy of a publication on another machine, as of an earlier version."""
    made = Publication(shutil.copytree(source.folder, folder, symlinks=True))
    for later in range(number + 1, 4):
        shutil.rmtree(made.versions[later].folder)
        made.delta(later).unlink()
    (made.folder / "current").unlink()
    (made.folder / "current").symlink_to(f"versions/{number:06}")
    return made


def typed(capsys: pytest.CaptureFixture[str], *line: object) -> dict[str, Any]:
    code = app(["--json", *map(str, line)], standalone_mode=False)
    found = capsys.readouterr()
    assert not code, found
    return json.loads(found.out)


def test_a_base_and_a_delta_are_the_next_version_byte_for_byte(
    published: Three, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = published(tmp_path / "shop")
    other = behind(source, tmp_path / "other", 1)
    for number in (2, 3):
        told = typed(capsys, "publish", other.folder, source.delta(number), "-w", tmp_path)
        assert (told["served"]["version"], told["before"]["version"]) == (number, number - 1)
    assert tree(other.folder) == tree(source.folder)
    assert (
        typed(capsys, "rollback", other.folder, "-w", tmp_path)["served"]["name"]
        == source.versions[2].manifest["run"]["name"]
    )
    other.apply(source.delta(2))
    other.apply(source.delta(3))
    assert other.current == other.versions[3]
    other.rollback()
    other.rollback()
    other.apply(source.delta(3))  # of the version before neither the served nor the next one
    assert other.current == other.versions[1]


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def _flip(at: float) -> Callable[[Path], None]:
    def flip(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[int(at * len(data))] ^= 1
        path.write_bytes(data)

    return flip


def _outside(path: Path) -> None:
    """Add a file above the folder, with all checksums right."""
    text = read_delta(path).model_dump_json().replace('"files":{', '"files":{"../../stolen":[0,[]],', 1).encode()
    end = path.stat().st_size - 40
    length = int.from_bytes(path.read_bytes()[end : end + 8], "big")
    path.write_bytes(
        path.read_bytes()[: end - length] + text + len(text).to_bytes(8, "big") + deltas.hashlib.sha256(text).digest()
    )


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_cut, "is damaged: it"),
        (lambda path: path.write_bytes(b""), "it is truncated, or no delta"),
        (_flip(0.3), "is damaged: "),
        (_flip(0.999), "its text does not match its checksum"),
        (_outside, "is no path in the bundle"),
        (lambda path: path.unlink(), "is missing"),
    ],
    ids=["cut", "empty", "block", "text", "outside", "missing"],
)  # fmt: skip
def test_a_damaged_delta_is_refused_and_nothing_written(
    damage: Callable[[Path], None], message: str, published: Three, tmp_path: Path
) -> None:
    source = published(tmp_path / "shop")
    other = behind(source, tmp_path / "other", 1)
    damage(source.delta(2))
    before = tree(tmp_path / "other")
    with pytest.raises(RecsysError, match=message):
        other.apply(source.delta(2))
    assert tree(tmp_path / "other") == before


def test_a_change_of_any_byte_of_a_delta_is_refused(published: Three, tmp_path: Path) -> None:
    source = published(tmp_path / "shop")
    other = behind(source, tmp_path / "other", 1)
    delta, before = source.delta(2), tree(tmp_path / "other")
    whole = delta.read_bytes()
    length = int.from_bytes(whole[-40:-32], "big")
    blocks = len(whole) - 40 - length
    places = [*range(0, blocks, 1 + blocks // 12), *range(blocks, len(whole) - 40, 1 + length // 20)]
    served = source.versions[3]
    for at in [*places, *range(len(whole) - 40, len(whole), 3)]:
        delta.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        with pytest.raises(RecsysError):
            other.apply(delta)
        assert tree(tmp_path / "other") == before
        if at >= blocks:  # the text, which a rollback reads
            assert source.current == served
            source.rollback()
            with pytest.raises(DataError, match="is damaged"):
                source.rollback()
            assert source.current == source.versions[2]
            delta.write_bytes(whole)
            source.apply(source.delta(3))
            assert source.current == served


def test_exchanged_deltas_and_a_changed_manifest_are_refused(published: Three, tmp_path: Path) -> None:
    source = published(tmp_path / "shop")
    others = [behind(source, tmp_path / str(number), number) for number in (1, 2)]
    two, three = source.delta(2).read_bytes(), source.delta(3).read_bytes()
    source.delta(2).write_bytes(three)
    source.delta(3).write_bytes(two)
    with pytest.raises(DataError, match="is not the delta of version 3"):
        source.rollback()
    assert source.current == source.versions[3]
    with pytest.raises(MissingArtifactError, match="makes version 3 of 2"):
        others[0].apply(source.delta(2))
    others[1].apply(source.delta(2))  # the content counts, not the name
    assert others[1].current.number == 3
    source.delta(2).write_bytes(two)
    source.delta(3).write_bytes(three)
    manifest = source.versions[2].folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"histories": true', '"histories": false'))
    for act in (source.rollback, lambda: behind(source, tmp_path / "third", 2).apply(source.delta(3))):
        with pytest.raises(RecsysError):
            act()
    assert source.current == source.versions[3]


def test_a_delta_that_does_not_fit_is_refused(published: Three, tmp_path: Path) -> None:
    source = published(tmp_path / "shop")
    other = behind(source, tmp_path / "other", 1)
    with pytest.raises(MissingArtifactError, match=r"makes version 3 of 2; the last of .* is 1"):
        other.apply(source.delta(3))
    (twin := tmp_path / "twin").mkdir()
    write_delta(twin / "delta", source.versions[2], Version(source.versions[3].folder))
    shutil.copytree(source.versions[1].folder, other.folder / "versions" / "000002")
    with pytest.raises(DataError, match="is of another base"):
        other.apply(twin / "delta")
    with pytest.raises(DataError, match=r"makes version 2 of 1; the last of .* is 2"):
        other.apply(source.delta(2))
    weights = behind(source, tmp_path / "third", 1).versions[1].weights
    _flip(0.5)(weights)
    with pytest.raises(DataError, match=f"{weights} is damaged"):
        Publication(tmp_path / "third").apply(source.delta(2))
    with pytest.raises(ConfigError, match="is a bundle"):
        Publication(source.versions[1].folder)


@given(
    st.binary(max_size=600),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 60), st.binary(max_size=60)), max_size=8),
)
def test_moved_and_changed_bytes_come_back(
    tmp_path_factory: pytest.TempPathFactory, old: bytes, edits: list[Any]
) -> None:
    folder = tmp_path_factory.mktemp("bytes")
    new = bytearray(old * 4)
    for place, removed, added in edits:
        at = int(place * len(new))
        new[at : at + removed] = added
    (folder / "old").write_bytes(old * 4)
    (folder / "new").write_bytes(new)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deltas, "_BLOCK", 256)
        patch.setattr(deltas, "_MARGIN", 32)
        with (folder / "packed").open("w+b") as file:
            packed = deltas._pack(folder / "old", folder / "new", file)
            file.seek(0)
            found = b"".join(deltas._unpack(file, folder / "old", *packed)) if packed else old * 4
    assert found == new


def test_rolled_back_versions_stay_and_numbers_go_on(
    published: Three, make_run: MakeRun, served_workspace: recsys.Workspace, tmp_path: Path
) -> None:
    shop = published(tmp_path / "shop")
    assert shop.publish(make_run("ease"), served_workspace).number == 3
    assert shop.rollback().number == 2
    assert shop.publish(make_run("popularity"), served_workspace).number == 4
    assert read_delta(shop.delta(4)).base[0] == 2
    assert [shop.rollback().number, shop.rollback().number] == [2, 1]
    with pytest.raises(MissingArtifactError, match="has no version before 1, which stays"):
        shop.rollback()
    assert list(shop.versions) == [1, 2, 3, 4]
    with pytest.raises(MissingArtifactError, match="serves no version"):
        Publication(tmp_path / "new").rollback()
    assert not (tmp_path / "new").exists()
    assert shop.publish(make_run("mf"), served_workspace).number == 1
    for number in range(5, KEPT + 4):
        shutil.copytree(shop.versions[4].folder, shop.folder / "versions" / f"{number:06}")
    assert shop.publish(make_run("item-knn"), served_workspace).number == KEPT + 4
    assert list(shop.versions) == list(range(5, KEPT + 5))
    assert [path.name for path in (shop.folder / "deltas").iterdir()] == [shop.delta(KEPT + 4).name]


KILLED = """
import os, shutil, signal, sys
from pathlib import Path
import recsys_cli as recsys
from recsys_cli.stages.publish import Publication
from recsys_cli.serving.bundle_writer import write_bundle

begun, folder, run, workspace = map(Path, sys.argv[1:])
rename, codes = Path.replace, []
STEPS = {"manifest.json", "000002", "000002.delta", "current"}

def replace(path, target):
    if Path(target).name in STEPS and left and left.pop() == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    return rename(path, target)

Path.replace = replace
while 0 not in codes:
    shop = Publication(shutil.copytree(begun, folder / str(len(codes)), symlinks=True))
    left = ["kill", *[""] * len(codes)]
    if os.fork() == 0:
        shop.publish(recsys.TrainedRun(run), recsys.Workspace(workspace))
        os._exit(0)
    codes.append(os.waitstatus_to_exitcode(os.wait()[1]))
print(codes)
"""
"""Publishes a run, each time in another process and copy of a folder, and kills before one more rename to the name of a step."""


@pytest.mark.slow
def test_a_kill_at_any_step_leaves_a_complete_version(
    published: Three, make_run: MakeRun, served_workspace: recsys.Workspace, tmp_path: Path
) -> None:
    run, begun = make_run("popularity"), behind(published(tmp_path / "shop"), tmp_path / "begun", 1)
    line = [sys.executable, "-c", KILLED, begun.folder, tmp_path / "killed", run.folder, served_workspace.root]
    (tmp_path / "killed").mkdir()
    done = subprocess.run(line, check=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    codes = json.loads(done.stdout)
    assert len(codes) == 6
    assert codes == [-signal.SIGKILL] * (len(codes) - 1) + [0]
    for folder in (tmp_path / "killed").iterdir():
        shop = Publication(folder)
        assert shop.current is not None
        shop.current.verify()
        assert shop.publish(run, served_workspace).number == 2
        assert not [path for path in folder.rglob(".*") if path.name != ".locks"]
        other = Publication(shutil.copytree(begun.folder, tmp_path / f"other-{folder.name}", symlinks=True))
        other.apply(shop.delta(2))
        assert tree(other.folder) == tree(folder)


def _everywhere(server: Running, model: str) -> Callable[[], bool]:
    return lambda: all(server.get("/bundles")["bundles"][0]["model"] == model for _ in range(10))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_servers_follow_with_feedback_and_upserts(
    workers: int, published: Three, make_run: MakeRun, served_workspace: recsys.Workspace, tmp_path: Path
) -> None:
    shop = published(tmp_path / "shop")
    with running(tmp_path / "server", str(shop.folder), "--workers", str(workers)) as server:
        server.post("/feedback", {"events": [{"user": 1, "item": 44}]})
        item = {"title": "New", "features": {"genres": ["Drama"], "year": 1999}}
        shop.rollback()
        assert until(_everywhere(server, "fm")) < 15
        assert server.get("/bundles")["bundles"][0]["number"] == 2
        assert server.post("/recommend", {"user": 1})["number"] == 2
        assert server.ask("PUT", "/items/900", item).status_code == 200
        shop.publish(make_run("ease"), served_workspace)
        until(_everywhere(server, "ease"))
        shop.rollback()
        until(_everywhere(server, "fm"))
        for _ in range(10):
            assert [one["item"] for one in server.get("/users/1?k=1")["history"]] == [44]
            assert server.get("/items/900")["title"] == "New"


@pytest.mark.parametrize("model", ["mf", "ease", "fm"])
def test_a_bundle_ends_with_its_last_reference(model: str, published: Three, tmp_path: Path) -> None:
    """What is loaded before the start of a server is exempt from garbage collection."""
    number = ["mf", "fm", "ease"].index(model) + 1
    loaded = load_bundle(published(tmp_path / "shop").versions[number].folder)
    warm(loaded)
    gc.collect()
    gc.disable()
    alive = [weakref.ref(one) for one in (loaded, loaded.served, loaded.served.model)]
    del loaded
    found = [one() is None for one in alive]
    gc.enable()
    assert found == [True] * 3
