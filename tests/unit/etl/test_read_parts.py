"""The way of the workers, run in threads: parts of files, shards at two levels and partitions of counts give the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from recsys_cli.config import RunConfig
from recsys_cli.cpu import Threads
from recsys_cli.errors import DataError
from recsys_cli.etl import counts, prepare, read_parts, staging
from recsys_cli.etl.read_parts import ReadPart
from recsys_cli.etl.reading.parts import FilePart
from recsys_cli.events import ignore
from recsys_cli.stages.etl import etl
from recsys_cli.workspace import Workspace
from tests.random_tables import config_of, contents


class Workers(Threads):
    """Threads that are told to do what workers of a cluster do."""

    @property
    def facts(self) -> dict[str, Any]:
        """See `Executor.facts`."""
        return {"cluster": "threads", "workers": 1, "threads": self.count}


@contextmanager
def as_workers(*_: Any, **__: Any) -> Iterator[Workers]:
    yield Workers(2)


@pytest.mark.parametrize("seed", range(48))
def test_workers_prepare_the_same_bytes(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(seed, tmp_path / "tables")
    alone = etl(config, Workspace(tmp_path / "alone")).artifact
    monkeypatch.setattr(prepare, "open_executor", as_workers)
    monkeypatch.setattr(read_parts, "PART_CHUNKS", (1e-5, 1e-4, 1)[seed % 3])
    monkeypatch.setattr(counts, "PARTITION_ROWS", (20, 100, 1 << 25)[seed % 3])
    monkeypatch.setattr(staging, "MAX_SHARDS", (1, 1_000)[seed // 3 % 2])
    together = etl(config, Workspace(tmp_path / "together"), emit=ignore).artifact
    assert contents(together.folder) == contents(alone.folder)
    assert together.manifest["cluster"] == "threads"


def table(path: Path, *lines: str) -> RunConfig:
    """Write text of user, item, tag and time, with line ends and quotes in the tags; return a config of it."""
    path.write_text("user,item,tag,time\n" + "".join(f"{line}\n" for line in lines))
    types = dict.fromkeys(("user", "item", "time"), "int64")
    ops = [
        {"op": "Categorify", "columns": ["user", "item", "tag"]},
        {"op": "LambdaOp", "expression": "item > 2", "output": "label", "dtype": "int8"},
    ]
    return RunConfig.model_validate({
        "dataset": {"name": "files", "interactions": {"files": str(path), "types": types}},
        "split": {"method": "random", "valid": 0.2, "test": 0.1},
        "features": {"user": "user", "item": "item", "label": "label", "timestamp": "time", "ops": ops},
    })  # fmt: skip


def failure(config: RunConfig, workspace: Path) -> str:
    with pytest.raises(DataError) as caught:
        etl(config, Workspace(workspace))
    return f"{caught.value.message} {caught.value.hint}"


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Parts of about a line of text, read by workers."""
    monkeypatch.setattr(prepare, "open_executor", as_workers)
    monkeypatch.setattr(read_parts, "PART_CHUNKS", 1e-6)
    return monkeypatch


LINES = [f"{number % 7},{number % 5},'{number}',{1_600_000_000 + number}" for number in range(200)]


@pytest.mark.parametrize(
    ("at", "line"),
    [(120, "1,2"), (199, "1,x,a,1600000000"), (60, '1,2,"open,1600000000'), (3, "1,2,a,"), (0, "1,2,a,never")],
)
def test_errors_name_the_same_line(
    at: int, line: str, tmp_path: Path, small_parts: pytest.MonkeyPatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [*LINES]
    lines[at] = line
    monkeypatch.chdir(tmp_path)
    config = table(Path("rows.csv"), *lines)
    by_workers = failure(config, tmp_path / "together")
    small_parts.undo()
    monkeypatch.chdir(tmp_path)
    assert by_workers == failure(config, tmp_path / "alone")


def test_the_first_error_in_the_file_counts(tmp_path: Path, small_parts: pytest.MonkeyPatch) -> None:
    lines = [*LINES]
    lines[150], lines[20] = "1,2", "3,4"
    assert ":22:" in failure(table(tmp_path / "rows.csv", *lines), tmp_path / "together")


def test_ranges_that_end_within_quotes_are_read_again(tmp_path: Path, small_parts: pytest.MonkeyPatch) -> None:
    """Bad rows that only exist for a reader that starts within quotes are no errors."""
    quoted = '"' + "\n1,2\n,,,,\n".join("two lines, quoted" for _ in range(30)) + '"'
    lines = [*LINES[:50], f"1,2,{quoted},1600000000", *LINES[50:], f"2,3,{quoted},1600000000"]
    config = table(tmp_path / "rows.csv", *lines)
    reads: list[FilePart] = []
    read = ReadPart.__call__
    small_parts.setattr(ReadPart, "__call__", lambda task, part: reads.append(part) or read(task, part))
    together = etl(config, Workspace(tmp_path / "together")).artifact
    assert len(reads) > len({part.start for part in reads}) > 20, "some ranges are read twice"
    small_parts.undo()
    assert contents(together.folder) == contents(etl(config, Workspace(tmp_path / "alone")).artifact.folder)


def test_scratch_files_of_parts_are_deleted_as_they_are_dealt(tmp_path: Path, small_parts: pytest.MonkeyPatch) -> None:
    config = table(tmp_path / "rows.csv", *LINES)
    left: list[Path] = []
    fit = prepare.fit
    small_parts.setattr(
        prepare,
        "fit",
        lambda *args, scratch, **more: left.extend(scratch.rglob("*.arrow")) or fit(*args, scratch=scratch, **more),
    )
    etl(config, Workspace(tmp_path / "together"))
    assert left
    assert {path.name.partition("-")[0] for path in left} == {"batch"}
