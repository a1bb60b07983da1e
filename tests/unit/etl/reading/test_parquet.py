"""Parquet with tiny, giant and empty row groups, all types, and errors for unreadable files."""

from __future__ import annotations

import datetime
import decimal
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from recsys_cli.data import open_source
from recsys_cli.data.source import RawTable
from recsys_cli.errors import DataError
from recsys_cli.etl.reading.reader import Reader
from recsys_cli.etl.reading.rows import plain_type, to_plain_type
from recsys_cli.etl.reading.typed_files import estimated_parquet_rows, parquet_batches


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(rows: pa.Table, name: str = "r.parquet", **options: Any) -> Path:
    pq.write_table(rows, name, **options)
    return Path(name)


def reader(*files: Path, **options: Any) -> Reader:
    return Reader(RawTable("interactions", files, format="parquet"), **options)


def stored_as(values: pa.Array) -> pa.Table:
    written(pa.table({"x": values}))
    return reader(Path("r.parquet")).read()


TEN = decimal.Decimal(10)
NOON = datetime.datetime(2026, 1, 31, 12)


@pytest.mark.parametrize(
    ("values", "kind", "read"),
    [
        (pa.array(["a", None, "a"]).dictionary_encode(), pa.string(), ["a", None, "a"]),
        (pa.array(["a", None], pa.large_string()), pa.string(), ["a", None]),
        (pa.array([[1, 2], [3, None]], pa.list_(pa.int16(), 2)), pa.list_(pa.int16()), [[1, 2], [3, None]]),
        (pa.array([[1, 2], None, []], pa.large_list(pa.float32())), pa.list_(pa.float32()), [[1, 2], None, []]),
        (pa.ListArray.from_arrays([0, 1, 1, 3], pa.array(["a", "b", None]).dictionary_encode()), pa.list_(pa.string()),
         [["a"], [], ["b", None]]),
        (pa.array([12 * TEN, None], pa.decimal128(38, 0)), pa.int64(), [120, None]),
        (pa.array([TEN / 4, None], pa.decimal128(9, 2)), pa.float64(), [2.5, None]),
        (pa.array([[TEN / 4]], pa.list_(pa.decimal128(9, 2))), pa.list_(pa.float64()), [[2.5]]),
        (pa.array([2**64 - 1, None], pa.uint64()), pa.uint64(), [2**64 - 1, None]),
        (pa.array([255, None], pa.uint8()), pa.uint8(), [255, None]),
        (pa.array([True, None, False]), pa.bool_(), [True, None, False]),
        (pa.array([NOON, None], pa.timestamp("ms", "Europe/Berlin")), pa.timestamp("ms"),
         [NOON, None]),
        (pa.array([NOON, None], pa.timestamp("ns")), pa.timestamp("ns"), [NOON, None]),
        (pa.array([datetime.date(2026, 1, 31), None]), pa.timestamp("us"), [datetime.datetime(2026, 1, 31), None]),
        (pa.array([b"ab", None], pa.binary(2)), pa.binary(), [b"ab", None]),
        (pa.nulls(2), pa.null(), [None, None]),
    ],
)  # fmt: skip
def test_columns_have_plain_types(values: pa.Array, kind: pa.DataType, read: list[object]) -> None:
    table = stored_as(values)

    assert table.schema.field("x").type == kind
    found = table["x"].to_pylist()
    assert [v.to_pydatetime() if hasattr(v, "to_pydatetime") else v for v in found] == read


def test_lists_of_one_length_may_be_null() -> None:
    vectors = pa.chunked_array([pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int16(), 2))]).slice(1)

    assert to_plain_type(vectors, pa.list_(pa.int64()), name="x", where="r").to_pylist() == [None, [3, 4]]


def test_half_floats_are_floats() -> None:
    halves = pa.chunked_array([pa.array([np.float16(1.5), None, np.float16(-2)], pa.float16())])

    assert plain_type(halves.type) == pa.float32()
    assert to_plain_type(halves, pa.float32(), name="x", where="r").to_pylist() == [1.5, None, -2.0]


def test_id_that_is_too_large_for_a_whole_number_is_refused() -> None:
    with pytest.raises(
        DataError, match=r"r\.parquet: column x has type decimal128\(38, 0\) and cannot be read as int64"
    ):
        stored_as(pa.array([decimal.Decimal(10**30)], pa.decimal128(38, 0)))


NESTED = {
    "pairs": pa.array([[[1], [2, 3]]]),
    "person": pa.array([{"name": "ann"}]),
    "bag": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
}


@pytest.mark.parametrize("name", NESTED)
def test_nested_columns_are_refused_only_where_they_are_read(name: str) -> None:
    file = written(pa.table({"id": [1], **NESTED}))

    assert reader(file, columns=["id"]).read().to_pydict() == {"id": [1]}
    with pytest.raises(DataError, match=rf"table 'interactions': cannot read {name} \((list|struct|map)<"):
        reader(file, columns=["id", name]).read()


MANY = pa.table({"a": np.arange(30_000), "b": [[row, row] for row in range(30_000)], "c": ["text"] * 30_000})


@pytest.mark.parametrize("row_group_size", [7, 1000, 30_000])
@pytest.mark.parametrize("chunk_bytes", [1 << 12, 1 << 16, 1 << 26])
def test_batches_are_independent_of_row_groups(row_group_size: int, chunk_bytes: int) -> None:
    file = written(MANY.slice(0, 3_000 if row_group_size == 7 else None), row_group_size=row_group_size)
    found = list(reader(file, columns=["b", "a"], chunk_bytes=chunk_bytes).batches())

    assert pa.concat_tables(found).equals(pq.read_table(file).select(["b", "a"]))
    sizes = [batch.nbytes for batch in found]
    assert max(sizes) <= chunk_bytes
    assert min([*sizes[:-1], chunk_bytes]) >= chunk_bytes / 2


def test_empty_row_groups_and_files_have_no_rows() -> None:
    with pq.ParquetWriter("r.parquet", MANY.schema) as writer:
        for rows in (0, 5, 0, 0, 3, 0):
            writer.write_table(MANY.slice(0, rows))
    empty = written(MANY[:0], "empty.parquet")

    found = reader(empty, Path("r.parquet"), empty)
    assert [batch.num_rows for batch in found.batches()] == [8]
    assert found.estimated_rows() == 8
    assert reader(empty).read().equals(MANY[:0])


def test_batches_are_measured_by_memory_size() -> None:
    text = "x" * 5_000  # once in the file, and 20,000 times in memory
    file = written(pa.table({"t": [text] * 20_000}))
    assert file.stat().st_size < 100_000

    assert max(batch.nbytes for batch in parquet_batches(file, ["t"], chunk_bytes=1 << 22)) < 1 << 21


def test_wide_tables_are_read_in_batches_of_the_same_size() -> None:
    file = written(pa.table({f"c{number}": np.arange(20_000) for number in range(40)}))
    names = [f"c{number}" for number in range(40)]

    assert max(batch.nbytes for batch in parquet_batches(file, names, chunk_bytes=1 << 20)) <= 1 << 18


def test_files_may_differ_in_order_and_width_of_columns() -> None:
    first = written(pa.table({"a": pa.array([1], pa.int64()), "b": ["x"]}), "1.parquet")
    second = written(
        pa.table({"b": pa.array(["y"], pa.large_string()), "a": pa.array([2], pa.int16()), "c": [0]}), "2.parquet"
    )

    assert reader(first, second).read().to_pydict() == {"a": [1, 2], "b": ["x", "y"]}
    third = written(pa.table({"a": [3]}), "3.parquet")
    with pytest.raises(DataError, match=r"3\.parquet: no column b; it has a"):
        reader(first, third).read()
    other = written(pa.table({"a": ["z"], "b": ["z"]}), "4.parquet")
    with pytest.raises(DataError, match=r"4\.parquet: column a has type string and cannot be read as int64"):
        reader(first, other).read()


@pytest.mark.parametrize("numbers_first", [True, False])
@pytest.mark.parametrize("numbers", [pa.array([1_769_860_800]), pa.array([1_769_860_800.5])])
def test_numbers_and_datetimes_in_one_column_are_refused(numbers: pa.Array, *, numbers_first: bool) -> None:
    raw = written(pa.table({"t": numbers}), "raw.parquet")
    times = written(pa.table({"t": pa.array([NOON], pa.timestamp("ns"))}), "times.parquet")
    files = (raw, times) if numbers_first else (times, raw)

    with pytest.raises(DataError, match="numbers and datetimes in one column") as error:
        reader(*files, times={"t": "detect"}).read()
    assert f"{numbers.type} in raw.parquet" in str(error.value)
    assert "timestamp[ns] in times.parquet" in str(error.value)
    assert "write the numbers as datetimes" in str(error.value.hint)


def test_numbers_with_a_unit_by_size_join_datetimes() -> None:
    raw = written(pa.table({"t": [1_769_860_800_000]}), "raw.parquet")
    times = written(pa.table({"t": pa.array([NOON], pa.timestamp("ns"))}), "times.parquet")

    assert reader(raw, times, times={"t": "detect"}).read().column("t").to_pylist() == [NOON, NOON]


def test_column_of_nulls_has_the_type_of_the_next_file() -> None:
    first = written(pa.table({"a": [1], "b": pa.nulls(1)}), "1.parquet")
    second = written(pa.table({"a": [2], "b": ["x"]}), "2.parquet")

    assert reader(first, second).read().to_pydict() == {"a": [1, 2], "b": [None, "x"]}


def test_types_and_lists_of_parquet_can_be_declared() -> None:
    written(pa.table({"id": ["1", "2"], "genres": ["a|b", None], "scores": [[1], [2]]}))
    options = {"files": "r.parquet", "types": {"id": "int64", "scores": "float32"}, "lists": {"genres": "|"}}
    (table,) = open_source("files", {"interactions": options}).tables(Path())

    read = Reader(table).read()
    assert read.to_pydict() == {"id": [1, 2], "genres": [["a", "b"], None], "scores": [[1.0], [2.0]]}
    assert read.schema.field("scores").type == pa.list_(pa.float32())

    (table,) = open_source("files", {"interactions": {**options, "types": {"no": "int64"}}}).tables(Path())
    with pytest.raises(DataError, match=r"r\.parquet: no column no, named in the dataset's types or lists"):
        Reader(table).schema()


def test_truncated_and_doubled_files_are_named() -> None:
    file = written(MANY)
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    with pytest.raises(DataError, match=r"r\.parquet: not a Parquet file"):
        reader(file).read()

    file.write_bytes(whole[:4] + b"\xff" * 2000 + whole[2004:])
    with pytest.raises(DataError, match=r"r\.parquet: cannot be read to its end"):
        reader(file).read()

    written(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]))
    for options in ({}, {"times": {"a": "s"}}):
        with pytest.raises(DataError, match=r"r\.parquet: duplicate column a"):
            reader(file, **options).schema()


@pytest.mark.parametrize(("of_footer", "stated", "found"), [(False, "3,000", "0"), (True, "7,096", "3,000")])
def test_one_damaged_byte_is_named(of_footer: bool, stated: str, found: str) -> None:
    file = written(pa.table({"user": range(3_000), "item": [f"i{row % 50}" for row in range(3_000)]}))
    text = bytearray(file.read_bytes())
    if of_footer:  # its number of rows, 3,000 as a zigzag varint, is the first one
        at = text.index(b"\xf0\x2e", len(text) - 8 - int.from_bytes(text[-8:-4], "little"))
        text[at + 1] ^= 0x40
    else:
        text[5] ^= 2  # the type of the first page, which readers then skip
    file.write_bytes(text)

    with pytest.raises(
        DataError, match=rf"r\.parquet: damaged: its metadata states {stated} rows, but it has {found}$"
    ):
        reader(file).read()


def test_rows_of_very_many_files_are_estimated_by_their_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [written(MANY[:100], f"{number}.parquet") for number in range(5)]

    assert estimated_parquet_rows(files) == 500
    monkeypatch.setattr("recsys_cli.etl.reading.typed_files._COUNTED_FILES", 2)
    assert estimated_parquet_rows(files) == 500


def test_string_views_of_newer_writers_are_text(here: Path) -> None:
    long = "a text of more than 12 bytes"
    write_deltalake("lake", pl.DataFrame({"user": ["a", long, None], "n": [1, 2, 3]}))
    (file,) = here.glob("lake/*.parquet")

    rows = reader(file)

    assert rows.schema() == pa.schema([("user", pa.string()), ("n", pa.int64())])
    assert rows.read().column("user").to_pylist() == ["a", long, None]
    assert rows.estimated_rows() == 3


def test_the_columns_of_a_wide_table_are_checked_in_linear_time() -> None:
    names = [f"c{number}" for number in range(8_000)]
    path = written(pa.table({name: pa.array([1], pa.int8()) for name in names}))
    start = time.process_time()
    rows, _ = reader(path).head(1)
    assert rows.column_names == names
    assert time.process_time() - start < 5  # a check of every pair of names takes 20 s
