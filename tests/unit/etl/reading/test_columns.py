"""Columns of the user's own text files: inferred and declared types."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest

from recsys_cli.data import open_source
from recsys_cli.detect.sampling import sampled
from recsys_cli.errors import DataError
from recsys_cli.etl.reading import text as text_files
from recsys_cli.etl.reading.reader import Reader


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def reader(text: str, **options: object) -> Reader:
    Path("r.csv").write_bytes(text.encode(str(options.get("encoding", "utf-8"))))
    (table,) = open_source("files", {"interactions": {"files": "r.csv", **options}}).tables(Path())
    return Reader(table)


@pytest.mark.parametrize(
    ("values", "kind", "read"),
    [
        (["1", "-2", ""], pa.int64(), [1, -2, None]),
        (["1", "2.5", ""], pa.float64(), [1.0, 2.5, None]),
        (["a", "2", ""], pa.string(), ["a", "2", None]),
        (["", "", ""], pa.string(), [None] * 3),
        (["01", "2", ""], pa.string(), ["01", "2", None]),
        (["0", "-0", "10"], pa.int64(), [0, 0, 10]),
        (["0.5", "00.5", ""], pa.float64(), [0.5, 0.5, None]),
        (["18446744073709551615", "1", ""], pa.string(), ["18446744073709551615", "1", None]),
        (["true", "False", ""], pa.bool_(), [True, False, None]),
        (["NA", "2", ""], pa.int64(), [None, 2, None]),
        (["None", "b", r"\N"], pa.string(), [None, "b", None]),
        (['"NA"', "b", "NULL"], pa.string(), ["NA", "b", None]),
        (["2026-01-31", "2026-02-01 10:00:00.5", ""], pa.timestamp("us"),
         [datetime(2026, 1, 31), datetime(2026, 2, 1, 10, 0, 0, 500_000), None]),
        (["2026-01-31", "2026-02-01", ""], pa.timestamp("us"), [datetime(2026, 1, 31), datetime(2026, 2, 1), None]),
        (["2026-01-31T10:00:00+02:00", "2026-02-01T00:00:00Z", ""], pa.timestamp("us"),
         [datetime(2026, 1, 31, 8), datetime(2026, 2, 1), None]),
    ],
)  # fmt: skip
def test_types_are_inferred_from_the_first_rows(values: list[str], kind: pa.DataType, read: list[object]) -> None:
    found = reader("id,x\n" + "".join(f"{row},{value}\n" for row, value in enumerate(values)))

    assert found.schema() == pa.schema([("id", pa.int64()), ("x", kind)])
    assert found.read()["x"].to_pylist() == read


def test_declared_types_are_used() -> None:
    text = "zip,n,when,flag,f\n1,2,2026-01-31T10:00:00Z,1,3\n"
    types = {"zip": "string", "n": "float32", "when": "timestamp", "flag": "bool", "f": "int32"}

    assert reader(text, types=types).read().to_pylist() == [
        {"zip": "1", "n": 2.0, "when": datetime(2026, 1, 31, 10), "flag": True, "f": 3}
    ]


def test_lists_are_split_by_the_declared_separator() -> None:
    text = "id,genres,scores\n1,a|b,1;2\n2,none,\n3,,7\n4,a b,8;\n"
    lists = {"genres": {"separator": "|", "empty": "none"}, "scores": ";"}

    read = reader(text.replace("8;", "8"), lists=lists, types={"scores": "int64"}).read()
    assert read["genres"].to_pylist() == [["a", "b"], [], None, ["a b"]]
    assert read["scores"].to_pylist() == [[1, 2], None, [7], [8]]
    with pytest.raises(DataError, match="column scores: an element of a list is not int64"):
        reader(text, lists=lists, types={"scores": "int64"}).read()


@pytest.mark.parametrize("rows", ["007,1", "a,1\n007,2", "1,2,3\n007,2", "'8',1\n007,2", " 8,1\n007,2"])
def test_ids_with_leading_zeros_after_the_first_rows_are_no_numbers(rows: str) -> None:
    Path("p.csv").write_text(f"item,n\n{rows}\n")
    Path("r.csv").write_text("item,n\n7,1\n")
    options = {"files": ["r.csv", "p.csv"], "quote": "'"}
    (table,) = open_source("files", {"interactions": options}).tables(Path())
    with pytest.raises(DataError, match=r"column item has the id '007', .* it would be 7") as raised:
        Reader(table, ids=("item",), skip_bad=True).read()
    assert "types: {item: string}" in str(raised.value.hint)
    assert sampled("t", options).options["types"] == {"item": "string"}
    declared = open_source("files", {"interactions": {**options, "types": {"item": "int64"}}}).tables(Path())[0]
    assert 7 in Reader(declared, ids=("item",), skip_bad=True).read()["item"].to_pylist()


def test_text_without_a_header_has_the_declared_names() -> None:
    read = reader("ann::007::2.5\nbob::10::3\n", names=["who", "what", "stars"], separator="::").read()

    assert read.to_pydict() == {"who": ["ann", "bob"], "what": ["007", "10"], "stars": [2.5, 3.0]}


def test_declared_dialect_is_used() -> None:
    read = reader("id;'a; b'\n1;'Déjà; vu'\n", separator=";", quote="'", encoding="latin-1").read()
    assert read.to_pydict() == {"id": [1], "a; b": ["Déjà; vu"]}

    read = reader('id,title\n1,"a\n2,5" disc\n', quote=None).read()
    assert read.to_pydict() == {"id": [1, 2], "title": ['"a', '5" disc']}


def test_the_hint_for_a_mistyped_later_row_names_the_type_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "_SAMPLE_BYTES", 20)

    with pytest.raises(DataError, match=r"r\.csv:102: column zip: 'AB1' is not an integer that fits int64") as found:
        reader("id,zip\n" + "1,2\n" * 100 + "1,AB1\n").read()
    assert "types come from the first rows (zip int64)" in str(found.value.hint)
    assert "types: {zip: string}" in str(found.value.hint)


def test_a_bad_row_among_the_first_does_not_decide_the_types() -> None:
    found = reader("id,x\n1,2\n3\n4,5\n")
    found.skip_bad = True

    assert found.read().to_pydict() == {"id": [1, 4], "x": [2, 5]}
    assert [str(row) for row in found.rejected] == ["r.csv:3: 1 fields instead of 2"]


def test_values_of_every_type_that_do_not_fit_are_named() -> None:
    text = "flag,when\ntrue,2026-01-31\nmaybe,2026-01-31\ntrue,31.1.2026\n"
    found = reader(text, types={"flag": "bool", "when": "timestamp"})
    found.skip_bad = True

    assert found.read().num_rows == 1
    assert [str(row) for row in found.rejected] == [
        "r.csv:3: column flag: 'maybe' is not true or false",
        "r.csv:4: column when: '31.1.2026' is not a timestamp, such as 2026-01-31 12:00:00",
    ]


def test_missing_declared_column_is_named() -> None:
    with pytest.raises(DataError, match=r"r\.csv:1: the header has no column zpi; it has id, zip") as found:
        reader("id,zip\n1,2\n", types={"zpi": "string"}).schema()
    assert "types and lists" in str(found.value.hint)


def test_types_are_those_of_the_first_file_with_rows() -> None:
    Path("1.csv").write_text("id,x\n")
    Path("2.csv").write_text("id,x\n1,2.5\n")
    Path("3.csv").write_text("x,id\n3,a\n")
    (table,) = open_source("files", {"interactions": ["1.csv", "2.csv", "3.csv"]}).tables(Path())

    assert Reader(table).schema() == pa.schema([("id", pa.int64()), ("x", pa.float64())])
    with pytest.raises(DataError, match=r"3\.csv:2: column id: 'a' is not an integer"):
        Reader(table).read()
    assert Reader(table, columns=["x"]).read()["x"].to_pylist() == [2.5, 3.0]


def test_field_of_any_length_is_read_next_to_a_bad_row() -> None:
    long = "y" * 2_000_000
    found = reader(f'id,x\n1,2\nbad\n2,"{long}"\n', types={"x": "string"})
    found.skip_bad = True

    assert found.read().to_pydict() == {"id": [1, 2], "x": ["2", long]}
    assert [str(row) for row in found.rejected] == ["r.csv:3: 1 fields instead of 2"]
