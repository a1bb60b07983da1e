"""Texts as numbers: the same texts come back, from any part of them, and those that are no numbers stay texts."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from recsys_cli.etl.counts import count, in_order
from recsys_cli.etl.packed import is_packed, joined, packed, unpacked, with_texts

SHORT = pa.array(["b", None, "12345678", "", "é", "b", None, "a\0b"])


def test_short_texts_become_numbers_and_texts_again() -> None:
    numbers = packed(SHORT)

    assert is_packed(numbers)
    assert unpacked(numbers).equals(SHORT)
    assert unpacked(numbers.slice(2, 5)).equals(SHORT.slice(2, 5))
    assert unpacked(packed(SHORT.slice(1, 6))).equals(SHORT.slice(1, 6))
    assert unpacked(numbers.take(pa.array([7, 1, 0]))).to_pylist() == ["a\0b", None, "b"]


@pytest.mark.parametrize("texts", [[], [None, None]])
def test_there_may_be_no_text(texts: list[None]) -> None:
    column = pa.array(texts, pa.string())

    assert unpacked(packed(column)).equals(column)


@pytest.mark.parametrize("text", ["123456789", "ends in NUL\0", "\0"])
def test_a_text_that_is_no_number_keeps_its_column_text(text: str) -> None:
    column = pa.array(["a", None, text])

    assert packed(column).equals(column)


def test_parts_are_texts_where_one_of_them_is() -> None:
    long = pa.array(["a long text"])

    assert is_packed(joined([packed(SHORT), packed(SHORT)], pa.string()))
    assert joined([packed(SHORT), long], pa.string()).to_pylist() == [*SHORT.to_pylist(), "a long text"]
    assert joined([], pa.string()).equals(pa.array([], pa.string()))


def test_a_file_keeps_them(tmp_path: Path) -> None:
    rows = pa.table({"text": packed(SHORT), "number": pa.array(range(len(SHORT)))})
    with pa.ipc.new_file(str(tmp_path / "rows.arrow"), rows.schema) as file:
        file.write_table(rows)

    read = pa.ipc.open_file(str(tmp_path / "rows.arrow")).read_all()

    assert is_packed(read.column("text"))
    assert with_texts(read).equals(pa.table({"text": SHORT, "number": rows.column("number")}))


def test_they_are_counted_as_the_texts_are() -> None:
    assert in_order(count(packed(SHORT))).equals(in_order(count(SHORT)))
    assert count(packed(SHORT)).equals(count(SHORT))
