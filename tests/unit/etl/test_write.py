"""Parquet files are written atomically, and partial files are swept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_cli.etl.write import sweep, write_table

TABLE = pa.table({"a": [1, 2, 3]})


def test_interrupted_write_leaves_no_final_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(table: pa.Table, path: Path, **options: Any) -> None:
        path.write_bytes(b"PAR1")
        raise KeyboardInterrupt

    folder = tmp_path / "train"
    with monkeypatch.context() as patched:
        patched.setattr(pq, "write_table", dies)
        with pytest.raises(KeyboardInterrupt):
            write_table(TABLE, folder / "00000.parquet")
    assert len(list(folder.iterdir())) == 1
    assert list(folder.glob("*.parquet")) == []

    write_table(TABLE, folder / "00000.parquet")
    sweep(folder)
    assert [path.name for path in folder.iterdir()] == ["00000.parquet"]
    assert pq.read_table(folder / "00000.parquet") == TABLE


def test_shard_written_twice_exists_once(tmp_path: Path) -> None:
    for _ in range(2):
        write_table(TABLE, tmp_path / "00000.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["00000.parquet"]


def test_sweep_of_a_missing_folder(tmp_path: Path) -> None:
    sweep(tmp_path / "test")
    assert not list(tmp_path.iterdir())
