"""Odd inputs are prepared, or refused with exit code 2 or 4 and a hint, never a traceback."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from recsys_cli.cli import app
from scripts.soak import odd_inputs
from tests.engines import every_engine

HEADER = b"user,item,stars\n"
ROWS = b"".join(b"%d,%d,%d\n" % (n % 4, n % 5, n % 6) for n in range(40))


@every_engine
def test_odd_inputs_give_data_or_an_error(name: str) -> None:
    lines: list[str] = []
    found = odd_inputs.main(12, 16, (name,), tell=lines.append)

    assert lines == []
    assert set(found["codes"][name]) <= {"0", "2", "4"}
    assert sum(found["codes"][name].values()) == 16


def answer(interactions: object, **sections: object) -> tuple[int, str]:
    """Prepare a table in the working directory; return the exit code and the output."""
    features = {
        "user": "user", "item": "item", "label": "label",
        "ops": [{"op": "LambdaOp", "expression": "stars > 3", "output": "label", "dtype": "int8"},
                {"op": "Categorify", "columns": ["user", "item"]}],
    }  # fmt: skip
    config: dict[str, object] = {"dataset": {"name": "files", "interactions": interactions}, "features": features}
    config |= sections
    Path("c.yaml").write_text(yaml.safe_dump(config))
    found = CliRunner().invoke(app, ["-w", "w", "etl", "c.yaml", "--quiet"])
    text = found.stdout + found.stderr
    assert "Traceback" not in text
    assert "Exception ignored" not in text
    return found.exit_code, text


@pytest.mark.parametrize(
    ("text", "options", "code", "message"),
    [
        (HEADER, {}, 4, "r.csv has columns (user, item, stars) and no rows"),
        (HEADER + b"\n\r\n", {}, 4, "r.csv has columns (user, item, stars) and no rows"),
        (b"", {}, 4, "r.csv has no header and no rows"),
        (HEADER + ROWS + b"D\xe9,1,2\n", {}, 4, "r.csv:42: column user: 'D\\\\xe9' is not UTF-8 text"),
        (HEADER + ROWS + b"1\r2,1,2\n", {}, 4, "r.csv:42: 1 fields instead of 3"),
        (HEADER + ROWS + b'1,1,"2\n', {}, 4, "r.csv:42: a quote opens a field here, and the file ends"),
        (HEADER + ROWS + b"1,1,2,3\n", {}, 4, "r.csv:42: 4 fields instead of 3"),
        (b"user,user,stars\n" + ROWS, {}, 4, "r.csv:1: the header names user twice"),
        (b"us\xffer,item,stars\n" + ROWS, {}, 4, "r.csv:1: the header is not UTF-8 text"),
        (HEADER + ROWS, {"quote": "é"}, 2, "quote has to be an ASCII character"),
        (HEADER + ROWS, {"separator": "\n"}, 2, "separator contains a line end"),
        (HEADER + ROWS, {"separator": '"'}, 2, "contains the quote"),
        ((HEADER + ROWS).decode().encode("utf-16"), {}, 4, "is text in UTF-16"),
        ((HEADER + ROWS).replace(b",", "§".encode()), {"separator": "§"}, 0, ""),
        (b"\xef\xbb\xbf" + HEADER + ROWS, {}, 0, ""),
        ((HEADER + ROWS).replace(b"\n", b"\r"), {}, 0, ""),
        (HEADER + ROWS + b'"' + b"x" * 100_000 + b'\n",1,2\n', {"types": {"user": "string"}}, 0, ""),
    ],
)
def test_odd_strings_are_read_or_reported(
    text: bytes, options: dict[str, object], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("r.csv").write_bytes(text)

    found, said = answer({"files": "r.csv", "types": {"user": "string"}, **options})
    assert message in " ".join(said.split())
    assert found == code


@pytest.mark.parametrize("role", ["user", "item", "stars"])
def test_lists_as_user_item_or_label_are_refused_with_the_plan(
    role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    columns = {"user": [1, 2, 3], "item": [1, 2, 3], "stars": [4, 5, 1]} | {role: [[1, 2], [3], []]}
    pq.write_table(pa.table(columns), "r.parquet")

    code, said = answer("r.parquet")
    assert code == 2
    assert f"'{role}' holds a list in each row" in said


@pytest.mark.parametrize("kind", ["Float16", "Int128"])
def test_types_unknown_to_pyarrow_are_refused_or_read(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    frame = pl.DataFrame({"user": [1, 2, 3] * 9, "item": [1, 2, 3] * 9, "stars": [4, 5, 1] * 9})
    frame.with_columns(x=pl.col("stars").cast(getattr(pl, kind))).write_parquet("r.parquet")

    code, said = answer("r.parquet")
    try:
        pq.read_schema("r.parquet")
    except (pa.ArrowNotImplementedError, OSError):
        assert code == 4
        assert f"r.parquet: pyarrow {pa.__version__} cannot read the type of a column" in said
        assert "write float16 as float32" in said
    else:
        assert code == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "column 4 of interactions: the name '' is empty"),
        ("\x01row", r"column 4 of interactions: the name '\x01row' begins with the reserved character"),
        ("x" * 300, f"column 4 of interactions: the name '{'x' * 40}' is too long"),
    ],
)
def test_odd_column_names_are_refused_where_the_plan_reads_them(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pl.read_csv(HEADER + ROWS).with_columns(pl.lit(1).alias(name)).write_csv("r.csv")

    assert answer("r.csv")[0] == 0
    ops = [{"op": "LambdaOp", "expression": "stars > 3", "output": "label", "dtype": "int8"},
           {"op": "Categorify", "columns": ["user", "item", name]}]  # fmt: skip
    code, said = answer("r.csv", features={"user": "user", "item": "item", "label": "label", "ops": ops})
    assert code == 2
    assert message in " ".join(said.split()).replace("\\\\", "\\")


def test_nan_users_are_refused_by_a_split_by_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    columns = {"user": [1.0, 2.0, float("nan")], "item": [1, 2, 3], "stars": [4, 5, 1]}
    pq.write_table(pa.table(columns), "r.parquet")

    code, said = answer("r.parquet", split={"method": "user", "valid": 0.3})
    assert code == 4
    assert "the column user has nulls, so the split cannot use it" in said


def test_splits_with_numbers_and_datetimes_as_times_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = pl.DataFrame({"user": [1, 2, 3], "item": [1, 2, 3], "stars": [5, 1, 5], "t": [1_700_000_000] * 3})
    rows.write_parquet("late.parquet")
    rows.with_columns(t=pl.from_epoch("t")).write_parquet("early.parquet")
    split = {"method": "files", "train": "early.parquet", "valid": "late.parquet"}
    ops = [{"op": "LambdaOp", "expression": "stars > 3", "output": "label", "dtype": "int8"},
           {"op": "Categorify", "columns": ["user", "item"]}]  # fmt: skip
    features = {"user": "user", "item": "item", "label": "label", "timestamp": "t", "ops": ops}

    code, text = answer("early.parquet", split=split, features=features)

    assert code == 4
    assert "int64 in late.parquet" in text
    assert "timestamp[us] in early.parquet" in text
