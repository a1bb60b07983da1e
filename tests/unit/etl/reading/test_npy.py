"""NumPy files as columns: types, order of bytes, names, and errors without pickle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from recsys_cli.data import open_source
from recsys_cli.errors import ConfigError, DataError
from recsys_cli.etl.reading.reader import Reader


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def items(*files: str, **options: Any) -> Reader:
    table = {"files": files, **options}
    source = open_source("files", {"interactions": table, "tables": {}})
    return Reader(source.tables(Path())[0], chunk_bytes=100)


@pytest.mark.parametrize(
    ("array", "kind", "read"),
    [
        (np.arange(3, dtype=">i4"), pa.int32(), [0, 1, 2]),
        (np.array(["ä", "b", ""]), pa.string(), ["ä", "b", ""]),
        (np.array([b"x", b"yz", b""]), pa.string(), ["x", "yz", ""]),
        (np.array(["2026-01-31"] * 3, "M8[s]"), pa.timestamp("s"), None),
        (np.array([1.5, np.nan, 0], np.float16)[1:].repeat(2)[1:], pa.float32(), None),
        (np.arange(6, dtype=np.float16).reshape(3, 2), pa.list_(pa.float32()), [[0, 1], [2, 3], [4, 5]]),
        (np.asfortranarray(np.arange(6.0).reshape(3, 2)), pa.list_(pa.float64()), [[0, 1], [2, 3], [4, 5]]),
    ],
)
def test_arrays_are_columns(array: np.ndarray, kind: pa.DataType, read: list[Any] | None) -> None:
    np.save("vector.npy", array)
    reader = items("vector.npy")

    rows = reader.read()

    assert (reader.schema(), rows.schema) == (pa.schema([("vector", kind)]),) * 2
    assert reader.estimated_rows() == rows.num_rows == 3
    assert read is None or rows.column("vector").to_pylist() == read


def test_rows_come_in_batches_of_both_files() -> None:
    vectors = np.random.default_rng(0).normal(size=(1_000, 8)).astype(np.float32)
    np.save("ids.npy", np.arange(1_000)[::-1])
    np.save("v.npy", vectors)

    rows = items("ids.npy", "v.npy", names=["item", "vector"]).read()

    assert rows.column("item").to_pylist() == list(range(999, -1, -1))
    assert np.array_equal(rows.column("vector").combine_chunks().flatten().to_numpy().reshape(-1, 8), vectors)


def test_arrays_that_are_no_columns() -> None:
    np.save("objects.npy", np.array([{"a": 1}], object), allow_pickle=True)
    with pytest.raises(DataError, match=r"objects\.npy: not an array in NumPy's format: .*Python objects"):
        items("objects.npy").read()
    Path("text.npy").write_text("item,vector\n")
    with pytest.raises(DataError, match=r"text\.npy: not an array"):
        items("text.npy").read()
    np.save("cube.npy", np.zeros((2, 3, 4)))
    with pytest.raises(DataError, match=r"an array of 2 x 3 x 4 with type float64 is no column"):
        items("cube.npy").read()
    np.save("three.npy", np.zeros(3))
    np.save("four.npy", np.zeros(4))
    with pytest.raises(DataError, match=r"differ in their rows: three\.npy has 3, four\.npy has 4"):
        items("three.npy", "four.npy").read()
    Path("cut.npy").write_bytes(Path("cube.npy").read_bytes()[:200])
    with pytest.raises(DataError, match=r"cut\.npy: not an array"):
        items("cut.npy").read()


def test_files_are_named_one_by_one() -> None:
    np.save("three.npy", np.zeros(3))
    with pytest.raises(ConfigError, match="1 NumPy files with the names item, vector") as caught:
        items("three.npy", names=["item", "vector"])
    assert "names: [item_id, vector]" in str(caught.value.hint)
    with pytest.raises(ConfigError, match="separator is for text"):
        items("three.npy", separator=";")
