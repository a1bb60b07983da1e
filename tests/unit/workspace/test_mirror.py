"""The mirror of a workspace on object storage: versions, races, lazy files. Servers, kills and commands: tests/e2e."""

import json

import fsspec
import pytest

from recsys_cli.errors import ConfigError, DataError, LockedError
from recsys_cli.workspace import Workspace, mirror, write_json, write_manifest

ADDRESS = "memory://bucket/ws"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Open the workspace on the machine of a name."""
    store = fsspec.filesystem("memory")
    store.store.clear()

    def open_(name):
        monkeypatch.setenv("RECSYS_S3_MIRROR", str(tmp_path / name))
        return Workspace(ADDRESS)

    return open_


def create(workspace, key, files, **facts):
    data = workspace.data(key)
    with workspace.create(data, {"key": key, "rows": {}, **facts}) as folder:
        for name, content in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(content)
    return data


def finish_run(workspace, name, **files):
    run = workspace.run_named(name)
    run.checkpoint("best").parent.mkdir(parents=True)
    for which in ("best", "last"):
        run.checkpoint(which).write_bytes(files.get(which, which.encode()))
    run.config.write_text("model: {name: mf}\n")
    write_manifest(run.folder, "TrainedRun", {"key": name, "data": {}})
    return run


def stored():
    """Return the names and contents of the files in the store."""
    place = "/bucket/ws/files/"
    found = {name: file.getvalue() for name, file in fsspec.filesystem("memory").store.items()}
    return {name.removeprefix(place): content for name, content in found.items() if name.startswith(place)}


def test_large_files_come_with_their_first_check(machine, monkeypatch):
    made = create(machine("one"), "a" * 16, {"schema.json": b"{}", "train/0.parquet": b"rows"})
    data = machine("two").data("a" * 16)
    assert data.exists
    assert data.damage is None
    assert {path.name for path in data.absent} == {"0.parquet"}
    data.verify_changed()
    assert not data.shards("train")
    data.verify()
    assert [path.read_bytes() for path in data.shards("train")] == [b"rows"]
    assert (data.folder / "manifest.json").read_bytes() == (made.folder / "manifest.json").read_bytes()
    assert data.damage is None


def test_a_file_is_in_blocks(machine, monkeypatch):
    monkeypatch.setattr(mirror, "_BLOCK", 4)
    create(machine("one"), "a" * 16, {"long": b"0123456789", "even": b"01234567", "short": b"0123", "empty": b""})
    blocks = [name.partition("aaaa/")[2] for name in stored() if "manifest" not in name]
    assert sorted(blocks) == ["even/00000", "even/00001", "long/00000", "long/00001", "long/00002", "short"]
    folder = machine("two").data("a" * 16).fetch().folder
    assert {path.name: path.read_bytes() for path in folder.glob("[els]*")} == {
        "long": b"0123456789", "even": b"01234567", "short": b"0123", "empty": b"",
    }  # fmt: skip


def test_a_replaced_artifact_has_no_file_of_the_former_one(machine):
    one = machine("one")
    create(one, "a" * 16, {"train/0.parquet": b"0", "train/1.parquet": b"1"})
    machine("two").data("a" * 16).verify()
    create(one, "a" * 16, {"train/0.parquet": b"2"})
    data = machine("two").data("a" * 16)
    data.verify()
    assert [path.read_bytes() for path in data.shards("train")] == [b"2"]


def test_an_evaluation_adds_its_files_to_those_in_the_store(machine):
    finish_run(machine("one"), "r1")
    run = machine("two").run_named("r1")
    run.rankings.write_bytes(b"rankings")
    run.report.write_text("report")
    run.write_evaluation({"key": "e", "pointwise": {}, "ranking": {}})
    assert not run.checkpoint("best").is_file()
    there = machine("three").run_named("r1")
    there.verify_evaluation()
    there.verify()
    assert there.checkpoint("best").read_bytes() == b"best"
    assert not there.checkpoint("last").is_file()
    there.fetch(there.checkpoint("last"))
    assert there.checkpoint("last").read_bytes() == b"last"
    assert sorted(name.rpartition("/")[2] for name in stored()).count("best.safetensors") == 1


def test_a_removed_artifact_is_removed_elsewhere(machine):
    one = machine("one")
    run, other = finish_run(one, "r1"), finish_run(one, "r2")
    two = machine("two")
    assert [one.folder.name for one in two.runs()] == ["r1", "r2"]
    one.remove(run)
    two = machine("two")
    assert [one.folder.name for one in two.runs()] == ["r2"]
    assert not two.run_named("r1").folder.exists()
    assert other.exists


def test_of_two_artifacts_of_a_key_the_first_stays(machine):
    one, two = machine("one"), machine("two")
    create(one, "a" * 16, {"0.parquet": b"first", "more.parquet": b""}, dataset="first")
    create(two, "a" * 16, {"0.parquet": b"second", "extra.parquet": b"1"}, dataset="second")
    assert not [name for name, content in stored().items() if b"second" in content]
    for name in ("two", "three"):
        data = machine(name).data("a" * 16).fetch()
        assert data.manifest["dataset"] == "first"
        assert sorted(path.name for path in data.folder.glob("*.parquet")) == ["0.parquet", "more.parquet"]
        data.verify()


def test_other_artifacts_do_not_conflict(machine):
    one, two = machine("one"), machine("two")
    create(one, "a" * 16, {"0.parquet": b"a"})
    create(two, "b" * 16, {"0.parquet": b"b"})
    for name in ("one", "two", "three"):
        assert [data.key[0] for data in machine(name).all_data()] == ["a", "b"]


def test_a_study_of_two_machines_is_an_error_for_the_second(machine):
    studies = [machine(name).study("s" * 16) for name in ("one", "two")]
    for study in studies:
        study.folder.mkdir(parents=True)
        study.journal.write_text(str(study.folder))
    facts = {"key": "s", "metric": {}, "trials": {}, "space": {}}
    write_manifest(studies[0].folder, "TunedStudy", facts)
    with pytest.raises(LockedError, match="another machine has written the study"):
        write_manifest(studies[1].folder, "TunedStudy", facts)
    assert machine("two").study("s" * 16).journal.read_text() == str(studies[0].folder)


def test_what_a_process_of_this_machine_writes_stays(machine):
    one = machine("one")
    run = finish_run(one, "r1")
    two = machine("two")
    run.rankings.write_bytes(b"")
    run.report.write_text("of one")
    run.write_evaluation({"key": "e", "pointwise": {}, "ranking": {}})
    with two.lock("run-r1"):
        assert not machine("two").run_named("r1").report.is_file()
    assert machine("two").run_named("r1").report.read_text() == "of one"


def test_a_failed_upload_is_completed_by_the_next_command(machine, monkeypatch):
    one = machine("one")
    with monkeypatch.context() as patch:
        patch.setattr(type(fsspec.filesystem("memory")), "pipe_file", unreachable)
        with pytest.raises(DataError, match="memory://bucket/ws: no route"):
            create(one, "a" * 16, {"0.parquet": b"a"})
    assert not machine("two").all_data()
    machine("one")
    assert machine("two").all_data()
    assert not list((one.root / ".mirror" / "uploads").iterdir())


def unreachable(*_, **__):
    raise OSError("no route")


def test_files_of_a_lost_machine_are_removed_after_a_week(machine, monkeypatch):
    create(machine("one"), "a" * 16, {"0.parquet": b"a"})
    store = fsspec.filesystem("memory")
    before = set(stored())
    old, young = (
        mirror._new_upload(mirror.time.time() - 8 * 86_400),
        mirror._new_upload(mirror.time.time() - 6 * 86_400),
    )
    for upload in (old, young):
        store.pipe_file(f"/bucket/ws/files/{upload}/data/b/0.parquet", b"b")
    machine("two")
    assert set(stored()) == {*before, f"{young}/data/b/0.parquet"}


def test_a_damaged_file_is_named(machine):
    create(machine("one"), "a" * 16, {"train/0.parquet": b"rows"})
    (name,) = (name for name in stored() if name.endswith("0.parquet"))
    fsspec.filesystem("memory").pipe_file(f"/bucket/ws/files/{name}", b"r0ws")
    data = machine("two").data("a" * 16)
    with pytest.raises(DataError, match=r"data/a+/train/0.parquet does not match its checksum"):
        data.verify()
    fsspec.filesystem("memory").rm(f"/bucket/ws/files/{name}")
    with pytest.raises(DataError, match=r"0.parquet is gone"):
        data.verify()


@pytest.mark.parametrize(
    "name", ["../x", "data/../../x", "/etc/x", "data/a/../../../x", "bin/a/b", "data/.a/b", ".mirror/url"]
)
def test_a_head_names_files_of_artifacts_only(machine, name):
    head = {"number": 1, "files": {name: [1, "00000000", "u"]}}
    fsspec.filesystem("memory").pipe_file("/bucket/ws/heads/00000001.json", json.dumps(head).encode())
    with pytest.raises(DataError, match="memory://bucket/ws: 1 validation error"):
        machine("one")


def test_an_address_with_a_secret_is_refused():
    with pytest.raises(ConfigError, match="has a secret"):
        Workspace("s3://key:secret@bucket/ws")


def test_the_current_config_follows_the_last_writer(machine):
    one, two = machine("one"), machine("two")
    for workspace, text in ((one, "a: 1\n"), (two, "a: 2\n")):
        with mirror.publishing(workspace.current):
            workspace.current.write_text(text)
    assert machine("one").current.read_text() == "a: 2\n"
    with mirror.publishing(one.current):
        one.current.unlink()
    assert not machine("two").current.exists()


def test_other_folders_have_no_mirror(workspace):
    data = create(workspace, "a" * 16, {"0.parquet": b"a"})
    assert mirror.mirror_of(data.folder) is None
    write_json(workspace.root / "x.json", {})
    assert not data.absent
    data.fetch()
