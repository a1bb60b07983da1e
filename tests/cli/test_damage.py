"""Damaged and missing files of a workspace: reported with a command, without harm to other artifacts."""

import json
import resource
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def there(finished, tmp_path):
    """The workspace after `recsys run`, in the working directory."""
    return tmp_path / "workspace"


def flip(path: Path, position: int = -2) -> None:
    """Flip one bit; a file keeps its size."""
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def garbage(path: Path) -> None:
    path.write_bytes(b"\xff\x1b[31m" * 40)


HOWS: list[Callable[[Path], None]] = [cut, empty, garbage, Path.unlink]
FILES = {
    "data/*/manifest.json": "data", "runs/*/manifest.json": "runs", "runs/*/evaluation.json": "runs",
    "data/*/train/00000.parquet": "data", "runs/*/checkpoints/best.safetensors": "runs",
}  # fmt: skip


@pytest.mark.parametrize("how", HOWS[:3], ids=lambda how: how.__name__)
@pytest.mark.parametrize("pattern", FILES)
def test_status_lists_damaged_artifacts(recsys, there, pattern, how):
    (path,) = there.glob(pattern)
    how(path)
    answer = recsys("status", "--json")
    assert answer.code == 0, answer.out
    (entry,) = answer.json[FILES[pattern]]
    assert str(path.relative_to(there)) in entry["problem"]
    assert "recsys " in entry["problem"]
    assert path.name in recsys("status").out.replace("\n", "")


def _a_letter(path: Path) -> int:
    """Return where a letter stands in the second half of a file: the last digit of a number may change and mean the same."""
    content = path.read_bytes()
    return next(at for at in range(len(content) // 2, len(content)) if content[at : at + 1].isalpha())


READERS = {
    "data/*/train/00000.parquet": ["evaluate", "--force"],
    "data/*/vocab/*.parquet": ["evaluate", "--force"],
    "data/*/schema.json": ["train", "--force"],
    "data/*/plan.json": ["etl", "--apply", "mlp", "ratings.csv"],
    "data/*/report.json": ["report", "ratings.yaml"],
    "data/*/manifest.json": ["train", "--force"],
    "runs/*/manifest.json": ["evaluate", "mlp", "--force"],
    "runs/*/config.yaml": ["evaluate", "mlp", "--force"],
    "runs/*/metrics.jsonl": ["evaluate", "mlp", "--force"],
    "runs/*/checkpoints/best.safetensors": ["inspect", "user", "u1", "--run", "mlp"],
    "runs/*/evaluation.json": ["report", "mlp"],
    "runs/*/rankings.safetensors": ["inspect", "item", "i1", "--run", "mlp"],
}  # fmt: skip


@pytest.mark.parametrize("how", [flip, *HOWS], ids=lambda how: how.__name__)
@pytest.mark.parametrize("pattern", READERS)
def test_damaged_file_is_reported_by_its_readers(recsys, there, pattern, how):
    path = sorted(there.glob(pattern))[0]
    how(path) if how is not flip else flip(
        path, _a_letter(path) if path.suffix == ".json" else path.stat().st_size // 2
    )
    answer = recsys(*READERS[pattern])
    assert answer.code in {3, 4}, answer.err
    assert answer.code == 3 or how is not Path.unlink
    assert "unexpected" not in answer.err
    assert "\x1b" not in answer.err
    assert "\nhint: " in answer.err
    assert path.parent.name in answer.err or path.name == "manifest.json"


def test_damaged_current_config_is_reported(recsys, there):
    garbage(there / "current.yaml")
    assert recsys("status").code == 0
    answer = recsys("train")
    assert answer.code == 2
    assert "current.yaml" in answer.err


def test_one_changed_label_is_noticed_by_the_next_stage(recsys, there):
    """Parquet reads a file with a flipped bit in the middle of a page without an error."""
    path = sorted(there.glob("data/*/valid/*.parquet"))[0]
    flip(path, 40)
    answer = recsys("evaluate", "--force")
    assert answer.code == 4
    assert f"{path.parent.name}/{path.name} is damaged" in answer.err
    assert "recsys etl --force" in answer.err
    assert recsys("etl", "--force").code == 0
    assert recsys("evaluate", "--force").code == 0


def test_a_cut_shard_is_prepared_again(recsys, there):
    path = sorted(there.glob("data/*/train/*.parquet"))[0]
    whole = path.read_bytes()
    cut(path)
    answer = recsys("etl", "ratings.yaml")
    assert answer.code == 0
    assert "preparing the data again" in answer.err
    assert path.read_bytes() == whole


def test_a_changed_figure_is_noticed(recsys, there):
    (path,) = there.glob("runs/*/evaluation.json")
    found = json.loads(path.read_text())
    found["pointwise"]["model"]["auc"]["value"] = 0.99
    path.write_text(json.dumps(found))
    assert "0.99" not in recsys("status").out
    assert recsys("status", "--json").json["runs"][0]["state"] == "damaged"
    assert recsys("evaluate").code == 0  # measured again
    assert recsys("status", "--json").json["runs"][0]["state"] == "evaluated"


def test_a_full_disk_hides_no_other_error_and_leaves_nothing(recsys, there):
    before = (there / "current.yaml").read_text()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        answers = [
            recsys("run", "train.seed=7"),
            recsys("bench", "bench.models=[popularity]"),
            recsys("evaluate", "--force"),
        ]
        assert recsys("status").code == recsys("report").code == 0
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    for answer in answers:
        assert (answer.code, "failed-" in answer.err) == (7, False), answer.err
    assert (there / "current.yaml").read_text() == before
    assert not list(there.rglob("*.partial"))


def test_full_disk_is_reported_with_path_and_stage(recsys, there):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, limits[1]))
    try:
        prepared, trained = recsys("etl", "--force"), recsys("train", "--force")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    for answer, stage in ((prepared, "etl"), (trained, "train")):
        assert answer.code == 7
        assert "error: no space left to write " in answer.err
        assert str(there) in answer.err
        assert "GiB are free" in answer.err
        assert f"(stage: {stage})" in answer.err
        assert "unexpected" not in answer.err
    assert recsys("run", "--json").code == 0
    assert list((there / ".scratch").iterdir()) == []


def test_control_characters_are_written_out(recsys, tmp_path):
    answer = recsys("validate", "a\x1b[31mb.yaml")
    assert answer.code != 0
    assert "\x1b" not in answer.err
    assert "a\\x1b[31mb.yaml" in answer.err
