"""Text in chunks of whole rows, with quotes, compression and line numbers."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_cli.cpu import read_ahead
from recsys_cli.data.raw_files import RawFile
from recsys_cli.data.source import RawColumn, RawTable
from recsys_cli.errors import DataError
from recsys_cli.etl.reading.dialect import end_of_rows
from recsys_cli.etl.reading.reader import Reader
from recsys_cli.etl.reading.text import Lines, chunks

COLUMNS = (RawColumn("id", "int32"), RawColumn("name", "string"))


def described(*files: RawFile, **dialect: object) -> RawTable:
    return RawTable("interactions", files, COLUMNS, **dialect)  # type: ignore[arg-type]


def names(table: RawTable, chunk_bytes: int, **options: object) -> list[str]:
    return Reader(table, chunk_bytes=chunk_bytes, **options).read().column("name").to_pylist()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("1,a\n2,b\n", "1,a\n2,b\n"),
        ("1,a\n2,b", "1,a\n"),
        ("1,a", ""),
        ('1,a\n2,"b\nc', "1,a\n"),
        ('1,a\n2,"b\nc"\n', '1,a\n2,"b\nc"\n'),
        ('1,a\n2,"b""\nc', "1,a\n"),
        ('1,a\n2,"b"""\n3', '1,a\n2,"b"""\n'),
        ('1,5" disc\n2,b\n3', '1,5" disc\n2,b\n'),  # a quote inside of a field is a letter
        ('1,5" disc\n2,"b\nc\n', '1,5" disc\n'),  # and pairs up with no other one
        ('1,"a\nb"\n2,"c\nd","e', '1,"a\nb"\n'),
        ('1,"a"b"\n2,"c\n', '1,"a"b"\n'),
        ('1,a""\n2,"b\n', '1,a""\n'),
        ("1,a\r2,b\r", "1,a\r"),
        ('"1\n', ""),
    ],
)
def test_rows_end_outside_of_quotes(text: str, whole: str) -> None:
    assert text[: end_of_rows(text.encode(), described())] == whole


def test_without_a_quote_character_every_line_end_ends_a_row() -> None:
    assert end_of_rows(b'1,"a\n2', described(quote=None)) == 5


@settings(max_examples=80, derandomize=True)
@given(
    values=st.lists(st.text(st.sampled_from('ab,"\n\r é'), max_size=6), min_size=1, max_size=12),
    chunk_bytes=st.integers(1, 40),
)
def test_csv_writer_output_is_read_from_any_chunks(values: list[str], chunk_bytes: int, tmp_path_factory) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(["id", "name"])
    writer.writerows(enumerate(values))
    file = tmp_path_factory.mktemp("written") / "r.csv"
    file.write_bytes(text.getvalue().encode())

    assert names(described(file), chunk_bytes) == values


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("chunk_bytes", [50, 1000, 1 << 20])
def test_bad_rows_have_the_line_of_the_decompressed_file(tmp_path: Path, packed: bool, chunk_bytes: int) -> None:
    lines = ["id,name", *(f'{row},"a\nb"' if row % 7 == 0 else f"{row},a" for row in range(900))]
    text = "\n".join(lines)
    for row in (100, 500, 501, 899):
        text = text.replace(f"\n{row},a", f"\nx{row},a")
    expected = [text[: text.index(f"x{row}")].count("\n") + 1 for row in (100, 500, 501, 899)]
    file = tmp_path / ("r.csv.gz" if packed else "r.csv")
    file.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    reader = Reader(described(file), skip_bad=True, chunk_bytes=chunk_bytes, threads=3)

    assert reader.read().num_rows == 896
    assert [row.line for row in reader.rejected] == expected
    with pytest.raises(DataError, match=rf"{file.name}:{expected[0]}: column id: 'x100' is not an integer"):
        Reader(described(file), chunk_bytes=chunk_bytes).read()


def test_lines_are_counted_on_demand(tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    file.write_bytes(b"a\nbb\nccc\ndddd\n")
    lines = Lines(file)

    assert [lines.at(offset) for offset in (9, 2, 0, 5)] == [4, 2, 1, 3]
    lines.record(9, bytearray(b"dddd\n"))
    file.unlink()
    assert lines.at(14) == 5


def test_many_files_are_one_table_in_their_order(tmp_path: Path) -> None:
    texts = ["id,name\n1,a\n", "id,name\n", "name,id\nb,2", "id,more,name\n3,x,c\n4,y,d\n"]
    files = [tmp_path / f"{number}.csv" for number in range(4)]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    packed = tmp_path / "4.csv.gz"
    packed.write_bytes(gzip.compress(b"id,name\n5,e\n"))

    table = described(*files, packed)
    assert names(table, 10) == ["a", "b", "c", "d", "e"]
    assert len(list(Reader(table).batches())) == 1

    files[2].write_text("id,nam\n2,b\n")
    with pytest.raises(DataError, match=r"2\.csv: no column name; it has id, nam"):
        Reader(table).read()
    assert Reader(table, columns=["id"]).read()["id"].to_pylist() == [1, 2, 3, 4, 5]


def test_row_without_an_end_is_refused_before_memory_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recsys_cli.etl.reading.text._LONGEST_ROW", 1000)
    file = tmp_path / "r.csv"
    file.write_text("id,name\n1,a\n2," + "b" * 3000 + "\n")

    with pytest.raises(DataError, match=r"r\.csv: a row is longer than") as found:
        names(described(file), 10)
    assert "quote: null" in str(found.value.hint)
    file.write_text('id,name\n1,"a\n' + "2,b\n" * 1000)
    with pytest.raises(DataError, match=r"r\.csv: a row is longer than"):
        names(described(file), 10)


def test_file_that_shrinks_during_the_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "r.csv"
    file.write_text("id,name\n1,a\n")
    monkeypatch.setattr("recsys_cli.etl.reading.text.size_of", lambda _: 100)

    with pytest.raises(DataError, match=r"r\.csv ended after 12 of 100 bytes"):
        list(chunks(described(file), chunk_bytes=100, check=lambda *_: None))


def test_reading_ahead_keeps_order_and_passes_errors_on() -> None:
    def numbers() -> Iterator[int]:
        yield from range(3)
        raise DataError("no more")

    coming = read_ahead(numbers())
    assert [next(coming) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(DataError, match="no more"):
        next(coming)


def test_reading_ahead_may_be_left_early(tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    file.write_text("id,name\n" + "1,a\n" * 1000)
    before = set(threading.enumerate())
    batches = Reader(described(file), chunk_bytes=64).batches()

    next(batches)
    working = set(threading.enumerate()) - before
    batches.close()

    assert working
    assert not any(thread.is_alive() for thread in working)


def test_only_the_next_item_is_fetched_ahead() -> None:
    fetched = []

    def endless() -> Iterator[int]:
        for number in itertools.count():
            fetched.append(number)
            yield number

    coming = read_ahead(endless())
    first = [next(coming) for _ in range(3)]
    coming.close()

    assert first == [0, 1, 2]
    assert len(fetched) <= 4
