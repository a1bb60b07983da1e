"""Texts as numbers: the same texts come back, from any part of them, and those that are no numbers stay texts."""

from __future__ import annotations

import pyarrow as pa
import pytest

from recsys_cli.etl.counts import count, in_order
from recsys_cli.etl.packed_strings import as_packed, is_packed, numbers_of_short, unpacked, with_texts


def packed(texts: pa.Array) -> pa.Array:
    numbers = numbers_of_short(texts)
    assert numbers is not None
    return as_packed(numbers)


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

    assert numbers_of_short(column) is None


def test_a_table_has_its_texts_again() -> None:
    rows = pa.table({"text": packed(SHORT), "number": pa.array(range(len(SHORT)))})

    assert with_texts(rows).equals(pa.table({"text": SHORT, "number": rows.column("number")}))


def test_they_are_counted_as_the_texts_are() -> None:
    assert in_order(count(packed(SHORT))).equals(in_order(count(SHORT)))
    assert count(packed(SHORT)).equals(count(SHORT))
