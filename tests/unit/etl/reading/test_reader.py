"""Reader of raw tables: all dialects, and bad rows by file, line and column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_cli.data.source import RawColumn, RawTable
from recsys_cli.errors import DataError
from recsys_cli.etl.reading.reader import Reader
from recsys_cli.etl.reading.text import resolve

RATINGS = (RawColumn("userId", "int32"), RawColumn("movieId", "int32"), RawColumn("rating", "float32"))
MOVIES = (
    RawColumn("movieId", "int32"),
    RawColumn("title", "string"),
    RawColumn("genres", "string", separator="|", empty="(no genres listed)"),
)


def table(path: Path, text: str | bytes, columns=RATINGS, **dialect) -> RawTable:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return RawTable("interactions", (path,), columns, **dialect)


def test_read_plain_csv(tmp_path: Path) -> None:
    raw = table(tmp_path / "r.csv", "userId,movieId,rating\n1,2,3.5\n4,5,0.5\n")

    read = Reader(raw).read()

    assert read.to_pylist() == [{"userId": 1, "movieId": 2, "rating": 3.5}, {"userId": 4, "movieId": 5, "rating": 0.5}]
    assert read.schema.types == [pa.int32(), pa.int32(), pa.float32()]


@pytest.mark.parametrize(
    "text",
    [
        b"userId,movieId,rating\r\n1,2,3.5\r\n4,5,0.5\r\n",
        b'"userId","movieId","rating"\n1,2,3.5\n4,5,0.5',
        b"\xef\xbb\xbfuserId,movieId,rating\n1,2,3.5\n4,5,0.5\n",
        b"rating,extra,userId,movieId\n3.5,x,1,2\n0.5,y,4,5\n",
    ],
    ids=["crlf", "quoted header, no last newline", "byte order mark", "other order and a column more"],
)
def test_read_accepts_common_csv_variants(tmp_path: Path, text: bytes) -> None:
    read = Reader(table(tmp_path / "r.csv", text), columns=["userId", "movieId", "rating"]).read()

    assert read.to_pydict() == {"userId": [1, 4], "movieId": [2, 5], "rating": [3.5, 0.5]}


def test_read_double_colons_and_latin_1(tmp_path: Path) -> None:
    text = "1::Déjà: vu (1990)::Comedy|Drama\n2::Plain::(no genres listed)\n".encode("latin-1")
    raw = table(tmp_path / "movies.dat", text, MOVIES, separator="::", header=False, encoding="latin-1", quote=None)

    assert Reader(raw).read().to_pydict() == {
        "movieId": [1, 2],
        "title": ["Déjà: vu (1990)", "Plain"],
        "genres": [["Comedy", "Drama"], []],
    }


def test_read_quoted_titles_with_separators_and_line_ends(tmp_path: Path) -> None:
    raw = table(tmp_path / "m.csv", 'movieId,title,genres\n1,"A, ""B""\nand C",X\n2,D,Y|Z\n', MOVIES)

    assert Reader(raw).read().to_pydict() == {
        "movieId": [1, 2], "title": ['A, "B"\nand C', "D"], "genres": [["X"], ["Y", "Z"]],
    }  # fmt: skip


def test_read_flags_as_a_list(tmp_path: Path) -> None:
    columns = (RawColumn("movieId", "int32"), RawColumn("Action", "int32"), RawColumn("Drama", "int32"))
    raw = table(
        tmp_path / "u.item", "1|0|1\n2|1|1\n3|0|0\n", columns, separator="|", header=False, quote=None,
        flags={"genres": ("Action", "Drama")},
    )  # fmt: skip

    assert Reader(raw, columns=["movieId", "genres"]).read().to_pydict() == {
        "movieId": [1, 2, 3],
        "genres": [["Drama"], ["Action", "Drama"], []],
    }


def test_read_types_of_a_users_own_file(tmp_path: Path) -> None:
    raw = table(tmp_path / "r.csv", "who,what,score\nann,1,0.5\nbob,2,\n", columns=())

    assert Reader(raw).read().to_pydict() == {"who": ["ann", "bob"], "what": [1, 2], "score": [0.5, None]}


def test_read_parquet_in_file_order(tmp_path: Path) -> None:
    rows = pa.table({"a": [1, 2, 3], "b": [[1], [], [2, 3]]})
    for part in (0, 1):
        pq.write_table(rows, tmp_path / f"{part}.parquet", row_group_size=2)
    raw = RawTable("interactions", (tmp_path / "0.parquet", tmp_path / "1.parquet"), format="parquet")

    assert Reader(raw, columns=["b"]).read().to_pydict() == {"b": [[1], [], [2, 3]] * 2}
    assert Reader(raw).estimated_rows() == 6


BAD = "userId,movieId,rating\n1,2,3.5\nx,2,1\n3,4\n5,6,oops\n7,8,9.5\n,1,2\n99999999999,1,2\n"


def test_bad_rows_are_named_by_file_line_and_column(tmp_path: Path) -> None:
    raw = table(tmp_path / "r.csv", BAD)

    with pytest.raises(DataError) as found:
        Reader(raw).read()

    for line in (
        "r.csv:3: column userId: 'x' is not an integer that fits int32",
        "r.csv:4: 2 fields instead of 3",
        "r.csv:5: column rating: 'oops' is not a number",
        "r.csv:7: column userId: is empty",
        "r.csv:8: column userId: '99999999999' is not an integer that fits int32",
    ):
        assert line in found.value.message
    assert "etl.on_bad_rows=skip" in str(found.value.hint)


@pytest.mark.parametrize(
    ("times", "option"), [({}, "(n int64), unless"), ({"t": "detect"}, "times: {t: FORMAT} next to the table's files")]
)
def test_the_hint_for_a_bad_row_names_the_option_for_its_column(
    tmp_path: Path, times: dict[str, str], option: str
) -> None:
    good = "2026-01-31 12:00:00,1\n" * 200_000  # more than decides the types
    raw = table(tmp_path / "r.csv", f"t,n\n{good}{'oops,1' if times else '2026-01-31 12:00:00,oops'}\n", columns=())

    with pytest.raises(DataError) as found:
        Reader(raw, times=times).read()
    assert option in str(found.value.hint)
    assert ("types: {n: string}" in str(found.value.hint)) == (not times)

    with pytest.raises(DataError) as found:
        Reader(raw, times=times, every_row=True).read()
    assert str(found.value.hint).startswith("fix the file: every row is prepared")
    assert "skip" not in str(found.value.hint)


def test_skipped_rows_are_collected(tmp_path: Path) -> None:
    reader = Reader(table(tmp_path / "r.csv", BAD), skip_bad=True)

    assert reader.read().column("userId").to_pylist() == [1, 7]
    assert [row.line for row in reader.rejected] == [3, 4, 5, 7, 8]
    assert reader.rejected[1].text == "3,4"


def test_bad_rows_have_the_line_of_the_file_whatever_the_chunk(tmp_path: Path) -> None:
    lines = ["userId,movieId,rating", *(f"{n},1,2.0" for n in range(1000))]
    lines[700] = "700,1"

    with pytest.raises(DataError, match=r"r.csv:701: 2 fields instead of 3"):
        Reader(table(tmp_path / "r.csv", "\n".join(lines)), chunk_bytes=256).read()


@pytest.mark.parametrize("chunk_bytes", [1, 7, 64, 1 << 20])
def test_chunks_lose_no_row(tmp_path: Path, chunk_bytes: int) -> None:
    text = "movieId,title,genres\n" + "".join(f'{n},"t\n{n}",a|b\n' for n in range(100))

    read = Reader(table(tmp_path / "m.csv", text, MOVIES), chunk_bytes=chunk_bytes).read()

    assert read.column("movieId").to_pylist() == list(range(100))
    assert read.column("title").to_pylist() == [f"t\n{n}" for n in range(100)]


def test_missing_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"r.csv:1: the header has no column rating; it has userId, movieId, stars"):
        Reader(table(tmp_path / "r.csv", "userId,movieId,stars\n1,2,3\n")).read()


def test_empty_and_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no header and no rows"):
        Reader(table(tmp_path / "r.csv", "")).read()
    with pytest.raises(DataError, match=r"gone.csv does not exist"):
        Reader(RawTable("interactions", (tmp_path / "gone.csv",), RATINGS)).read()


def test_file_with_only_a_header_has_no_rows(tmp_path: Path) -> None:
    read = Reader(table(tmp_path / "r.csv", "userId,movieId,rating\n")).read()

    assert read.num_rows == 0
    assert read.schema.types == [pa.int32(), pa.int32(), pa.float32()]


def test_invalid_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_text("no")

    with pytest.raises(DataError, match=r"x.parquet: not a Parquet file"):
        Reader(RawTable("interactions", (tmp_path / "x.parquet",), format="parquet")).schema()


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 9])
def test_the_head_is_the_first_rows_and_types_are_resolved_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    raw = table(tmp_path / "r.csv", "userId,movieId,rating\n1,2,3.5\n4,5,0.5\n7,8,1.5\n", ())
    resolved = []

    def counted(*args: Any) -> Any:
        resolved.append(args)
        return resolve(*args)

    monkeypatch.setattr("recsys_cli.etl.reading.reader.resolve", counted)
    rows, is_whole = Reader(raw).head(limit)
    assert rows.column("userId").to_pylist() == [1, 4, 7][:limit]
    assert is_whole == (limit >= 3)
    assert len(resolved) == 1
