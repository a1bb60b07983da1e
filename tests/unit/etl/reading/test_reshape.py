"""Lists as rows, numbers of rows, and JSON lines."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_cli.data.files import Files, FilesOptions
from recsys_cli.errors import DataError
from recsys_cli.etl.reading.reader import Reader


def read(options: object, **reader: object) -> pa.Table:
    table = Files(FilesOptions.model_validate({"interactions": options})).tables(Path())[0]
    return Reader(table, **reader).read()


def test_the_last_column_takes_the_rest_of_the_line(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("7 1 2 3\n8 4\n9 \n10 5 6 \n")
    options = {"files": str(path), "separator": " ", "names": ["user", "item"], "lists": {"item": " "}, "quote": None}
    shaped = {**options, "explode": "item", "order": "position", "types": {"user": "int64"}}
    expected = {"user": [7, 7, 7, 8, 10, 10], "item": ["1", "2", "3", "4", "5", "6"], "position": [0, 1, 2, 3, 4, 5]}
    assert read(shaped).to_pydict() == expected
    assert read(shaped, columns=("position", "user")).to_pydict() == {
        "position": expected["position"],
        "user": expected["user"],
    }
    assert read(options).to_pydict()["item"][0] == ["1", "2", "3"]


def test_rows_have_numbers_in_order_over_chunks_and_files(tmp_path: Path) -> None:
    rows = 60_000
    pq.write_table(
        pa.table({"user": range(rows), "items": [[row, -row] for row in range(rows)]}), tmp_path / "a.parquet"
    )
    pq.write_table(pa.table({"user": [-1], "items": [[5]]}), tmp_path / "b.parquet")
    options = {"files": f"{tmp_path}/*.parquet", "explode": "items", "order": "at"}
    table = read(options, chunk_bytes=1 << 16)
    assert table.column("at").to_pylist() == list(range(2 * rows + 1))
    assert table.column("items").to_pylist()[-3:] == [rows - 1, 1 - rows, 5]


def test_candidates_become_items_and_clicks(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("user,shown\n1,N1-1 N-2-0\n2,\n3,N3-0\n")
    options = {"files": str(path), "lists": {"shown": " "}, "explode": "shown", "clicks": "click"}
    expected = {"user": [1, 1, 3], "shown": ["N1", "N-2", "N3"], "click": [1, 0, 0]}
    assert read(options).to_pydict() == expected
    assert read(options, columns=("click",)).to_pydict() == {"click": expected["click"]}
    path.write_text("user,shown\n1,N1-1 N2\n")
    with pytest.raises(DataError, match="'N2', and candidates end in -0 or -1"):
        read(options)


def test_columns_of_joined_tables_have_new_names(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,kind,user_id\n1,a,7\n")
    for rename, expected in (({"id": "item_id"}, {"item_id": [1], "kind": ["a"]}), ({"id": "user_id"}, None)):
        options = FilesOptions.model_validate(
            {"interactions": str(path), "tables": {"items": {"files": str(path), "rename": rename}}}
        )
        reader = Reader(Files(options).tables(Path())[1], columns=("item_id", "kind") if expected else None)
        if expected is not None:
            assert reader.read().to_pydict() == expected
            continue
        with pytest.raises(DataError, match="has a column 'user_id'"):
            reader.read()
    with pytest.raises(ValueError, match="rename is for tables to join"):
        FilesOptions.model_validate({"interactions": {"files": "t.csv", "rename": {"a": "b"}}})


@pytest.mark.parametrize("limit", [1, 3, 5, 9])
def test_a_limit_reads_the_first_rows(tmp_path: Path, limit: int) -> None:
    path = tmp_path / "t.csv"
    path.write_text("user,items\n1,a|b\n2,c\n3,d|e\n")
    options = {"files": str(path), "lists": {"items": "|"}, "explode": "items"}
    assert read(options, limit=limit).column("items").to_pylist() == list("abcde")[:limit]


@pytest.mark.parametrize(
    ("option", "message"), [({"explode": "user"}, "has to hold lists"), ({"order": "user"}, "choose another name")]
)
def test_wrong_shapes_are_refused(tmp_path: Path, option: dict[str, str], message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text("user,items\n1,2|3\n")
    with pytest.raises(DataError, match=message):
        read({"files": str(path), **option})


@pytest.mark.parametrize("packed", [False, True])
def test_json_lines_equal_parquet(tmp_path: Path, packed: bool) -> None:
    rows = [
        {"user": f"u{row % 7}", "item": row, "price": row / 4, "when": f"2024-01-0{1 + row % 9} 10:00:00",
         "tags": ["a", "b"][: row % 3], "extra": {"ignored": row}}
        for row in range(2_000)
    ]  # fmt: skip
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path = tmp_path / ("t.jsonl.gz" if packed else "t.jsonl")
    path.write_bytes(gzip.compress(text) if packed else text)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    columns = ("item", "user", "price", "tags")
    assert read(str(path), columns=columns) == read(str(tmp_path / "t.parquet"), columns=columns)
    detected = read(str(path), columns=("when",), times={"when": "detect"}).column("when")
    assert str(detected[0].as_py()) == "2024-01-01 10:00:00"


def test_bad_json_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("null\n{}\n")  # pyarrow itself crashes here
    with pytest.raises(DataError, match="a line begins with 'null'"):
        read(str(path))
    path.write_text('{"user": 1}\nnothing\n')
    with pytest.raises(DataError, match="not JSON lines"):
        read(str(path))


@pytest.mark.parametrize("name", ["t.log", "t.log.gz", "t.parquet"])
def test_the_format_decides_and_not_the_suffix(tmp_path: Path, name: str) -> None:
    text = b'{"user": 1, "item": "a"}\n{"user": 2, "item": "b"}\n'
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    table = read({"files": str(tmp_path / name), "format": "jsonl"}, times={"user": "detect"})
    assert table.column("item").to_pylist() == ["a", "b"]


def test_a_json_suffix_with_another_format(tmp_path: Path) -> None:
    pq.write_table(pa.table({"user": [1, 2]}), tmp_path / "t.json")
    assert read({"files": str(tmp_path / "t.json"), "format": "parquet"}).to_pydict() == {"user": [1, 2]}


def test_a_format_keeps_the_separator_of_the_suffix(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("user\titem\n1\t2\n")
    assert read({"files": str(tmp_path / "t.tsv"), "format": "csv"}).to_pydict() == {"user": [1], "item": [2]}


@pytest.mark.parametrize("end", ["", "\n", "\r\n\r\n"])
def test_many_short_json_lines(tmp_path: Path, end: str) -> None:
    rows = 220_000
    (tmp_path / "t.jsonl").write_text("\n".join(f'{{"u":{row}}}' for row in range(rows)) + end)
    assert read(str(tmp_path / "t.jsonl")).column("u").to_pylist() == list(range(rows))


@pytest.mark.parametrize("size", [5 << 20, 17 << 20])
@pytest.mark.parametrize("end", ["", "\n"])
def test_a_first_json_line_longer_than_the_sample(tmp_path: Path, size: int, end: str) -> None:
    lines = [f'{{"u": 1, "text": "{"x" * size}"}}', '{"u": 2, "text": "a"}']
    (tmp_path / "t.jsonl").write_text("\n\n" + "\n".join(lines) + end)
    table = read(str(tmp_path / "t.jsonl"))
    assert table.column("u").to_pylist() == [1, 2]
    assert [len(text) for text in table.column("text").to_pylist()] == [size, 1]


def test_a_long_json_array_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text("[" + '{"user": 1}, ' * 400_000 + '{"user": 1}]')
    with pytest.raises(DataError, match="changed from object to array"):
        read(str(tmp_path / "t.json"))
