"""Row boundaries by Arrow's grammar, independent of chunks and neighboring rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyarrow import csv

from recsys_cli.data import open_source
from recsys_cli.data.source import RawColumn, RawTable
from recsys_cli.errors import DataError
from recsys_cli.etl.reading.dialect import end_of_first_row, end_of_rows, open_quote, read_text, rows_of
from recsys_cli.etl.reading.reader import Reader

COLUMNS = (RawColumn("id", "string", nullable=True), RawColumn("n", "int64", nullable=True))
PARTS = [
    '"',
    '"',
    "\n",
    "\r\n",
    "\r",
    ",",
    ",",
    "::",
    ":",
    "a",
    "1",
    "1",
    "é",
    "\ufeff",
    "\x00",
    '12" vinyl',
    '"q\nq",1\n',
    "7\n",
]
TEXTS = st.lists(st.sampled_from(PARTS), max_size=24).map("".join)


def described(file: Path, **dialect: object) -> RawTable:
    return RawTable("interactions", (file,), COLUMNS, header=False, **dialect)  # type: ignore[arg-type]


def outcome(table: RawTable, chunk_bytes: int, columns: Sequence[str] | None = None) -> object:
    """Return the rows and the bad rows, or the error."""
    reader = Reader(table, columns=columns, chunk_bytes=chunk_bytes, skip_bad=True)
    try:
        rows = reader.read()
    except DataError as error:
        return str(error)
    return rows.to_pylist(), [(row.line, row.column, row.reason, row.text) for row in reader.rejected]


@settings(max_examples=250, derandomize=True)
@given(text=TEXTS, chunk_bytes=st.integers(1, 24), separator=st.sampled_from([",", "::"]), quoted=st.booleans())
@example(text='12" vinyl,1\n"open\nfield",2\n', chunk_bytes=18, separator=",", quoted=True)
@example(text='"a\nb","c\n', chunk_bytes=9, separator=",", quoted=True)
@example(text="a,1\rb,2\r\nc,3\r", chunk_bytes=5, separator=",", quoted=True)
@example(text='a:::"b\n1"::3\n', chunk_bytes=8, separator="::", quoted=True)
def test_rows_are_the_same_for_any_chunks(
    text: str, chunk_bytes: int, separator: str, quoted: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("any") / "r.csv"
    file.write_bytes(text.encode())
    table = described(file, separator=separator, quote='"' if quoted else None)

    assert outcome(table, chunk_bytes) == outcome(table, 1 << 20)


@settings(max_examples=150, derandomize=True)
@given(text=TEXTS)
def test_rows_are_those_that_arrow_reads(text: str) -> None:
    table = RawTable("interactions", (Path("r.csv"),), COLUMNS)
    data = text.replace("\ufeff", "").encode()
    first, last, opened = end_of_first_row(data, table), end_of_rows(data, table), open_quote(data, table)
    assert last == 0 or data[last - 1 : last] in {b"\n", b"\r"}
    if opened is not None:
        assert data[opened : opened + 1] == b'"'
        assert opened == 0 or data[opened - 1 : opened] in {b",", b"\n", b"\r"}
        return
    rows = [data[start:stop] for start, stop in rows_of(data, table)]
    ends = [stop for _, stop in rows_of(data, table)]
    assert first in {len(data), *(stop + 1 for stop in ends), *(stop + 2 for stop in ends), 1, 2}
    assert len([*rows_of(data[:last], table), *rows_of(data[last:], table)]) == len(rows)
    if rows:
        others: list[csv.InvalidRow] = []
        kinds = dict.fromkeys(("id", "n"), pa.binary())
        whole = read_text(data, table, kinds, in_one=True, others=others)
        assert whole.num_rows + len(others) == len(rows)
        assert [row.text.encode() for row in others] == [rows[row.number - 1] for row in others]


def test_long_text_with_stray_quotes_is_cut_as_arrow_cuts_it(tmp_path: Path) -> None:
    draw = random.Random(3)
    names = ['5" disc', '"two\nlines"', '"a ""b"" c"', "plain", '"x"y"', '""', "é"]
    text = "".join(f"{draw.choice(names)},{row}\n" for row in range(300_000))
    file = tmp_path / "r.csv"
    file.write_text(text)

    whole, cut = (Reader(described(file), chunk_bytes=size).read() for size in (64 << 20, (1 << 20) + 7))

    assert whole.num_rows == 300_000
    assert cut.equals(whole)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("chunk_bytes", [8, 1 << 20])
def test_line_ends_of_every_kind(tmp_path: Path, end: str, chunk_bytes: int) -> None:
    file = tmp_path / "r.csv"
    file.write_bytes(end.join(["id,n", "a,1", "b,2", "c,x", "d,4"]).encode())
    table = RawTable("interactions", (file,), COLUMNS)
    reader = Reader(table, chunk_bytes=chunk_bytes, skip_bad=True)

    assert reader.read().to_pydict() == {"id": ["a", "b", "d"], "n": [1, 2, 4]}
    assert [row.line for row in reader.rejected] == [4]


@pytest.mark.parametrize(
    ("field", "kind", "value"),
    [
        ("1_000", "int64", None), ("٣", "int64", None), ("1_5.5", "float64", None), ("٣.٣", "float64", None),
        ("1e3", "int64", None), ("+1", "int64", None), ("0x10", "int64", 16), (" 7 ", "int64", 7), ("1.", "float64", 1.0),
        ("inf", "float64", float("inf")), ("yes", "bool", None), ("9223372036854775808", "int64", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("also", ["", "bad row\n"])
def test_slow_reader_accepts_the_same_rows_as_the_fast_one(
    tmp_path: Path, field: str, kind: str, value: object, also: str
) -> None:
    file = tmp_path / "r.csv"
    file.write_text(f"a,{field}\n{also}")
    columns = (RawColumn("id", "string"), RawColumn("n", kind))  # type: ignore[arg-type]
    reader = Reader(RawTable("interactions", (file,), columns, header=False), skip_bad=True)

    assert reader.read()["n"].to_pylist() == ([] if value is None else [value])
    assert [row.column for row in reader.rejected] == ["n"] * (value is None) + [None] * bool(also)


def test_bad_row_does_not_affect_its_neighbors(tmp_path: Path) -> None:
    rows = ['"",', ",1", '"a",2', '"2020",3', "b,4"]
    file = tmp_path / "r.csv"
    read = []
    for more in ([], ["only one"]):
        file.write_text("\n".join([*rows, *more]))
        read.append(Reader(described(file), skip_bad=True).read().to_pylist())

    assert read[0] == read[1]
    assert [row["id"] for row in read[0]] == ["", None, "a", "2020", "b"]


def test_unused_columns_are_not_checked(tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    file.write_bytes(b"a,x\nD\xe9j\xe0,2\nonly one\n")

    assert outcome(described(file), 1 << 20, columns=["id"]) == (
        [{"id": "a"}],
        [
            (2, "id", r"'D\\xe9j\\xe0' is not UTF-8 text", r"D\xe9j\xe0,2"),
            (3, None, "1 fields instead of 2", "only one"),
        ],
    )


def test_separators_inside_of_quotes_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    file.write_text('"a::b"::1\nc:d::2\n')

    assert Reader(described(file, separator="::")).read()["id"].to_pylist() == ["a::b", "c:d"]


def test_invalid_utf_8_prints_no_other_output(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "r.csv"
    file.write_bytes(b"id,n\n1,2\nD\xe9j\xe0\nx\xe9,1\n")
    (table,) = open_source("files", {"interactions": str(file)}).tables(Path())

    with pytest.raises(DataError, match=r"r\.csv:3: 1 fields instead of 2\n.*r\.csv:4: column id: 'x") as found:
        Reader(table).read()
    assert "encoding: latin-1" in str(found.value.hint)
    assert capfd.readouterr().err == ""
