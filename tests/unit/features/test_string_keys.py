"""Texts as words and numbers: order, round trip, and independence of memory layout."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsys_cli.features.string_keys import BLOCK_ROWS, Words, pack, unpack

TEXTS = st.lists(st.text(max_size=12) | st.sampled_from(["", "\0", "a\0", "\0a", "12345678", "1234567\0", "123456789"]))


def test_words_are_eight_bytes_each_and_zeros_behind_the_last() -> None:
    words = Words.of(pa.array(["ab", "", "12345678é"]))

    assert words.lengths.tolist() == [2, 0, 10]
    assert [word.to_bytes(8, "little") for word in words.word(0).tolist()] == [
        b"ab".ljust(8, b"\0"),
        bytes(8),
        b"12345678",
    ]
    second = words.word(1, np.array([2]))[0]
    assert int(second).to_bytes(8, "little") == "é".encode().ljust(8, b"\0")


@given(TEXTS, st.sampled_from([pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]))
def test_short_texts_are_numbers_in_the_same_order(texts: list[str], kind: pa.DataType) -> None:
    numbers, refused = pack(pa.array([text.encode() for text in texts], pa.binary()).cast(kind))

    assert refused.tolist() == [len(text.encode()) > 8 or text.endswith("\0") for text in texts]
    kept = [text for text, no in zip(texts, refused, strict=True) if not no]
    assert [kept[at] for at in np.argsort(numbers[~refused], kind="stable")] == sorted(kept, key=str.encode)
    assert unpack(numbers[~refused]).to_pylist() == kept


@pytest.mark.parametrize("size", [0, 1, BLOCK_ROWS, BLOCK_ROWS + 1])
def test_blocks_make_no_difference(size: int) -> None:
    texts = pa.array([f"{number:x}" for number in range(size)], pa.string())

    assert unpack(pack(texts)[0]).cast(pa.string()).equals(texts)


def test_texts_of_eight_bytes_with_nulls_between() -> None:
    texts = pa.array(["x", None, "12345678", "", None, "abcdefg\0", "abcdefgh"]).slice(1)

    numbers, refused = pack(texts)

    assert refused.tolist() == [False, False, False, False, True, False]
    assert unpack(numbers).to_pylist() == ["", "12345678", "", "", "abcdefg", "abcdefgh"]


def test_slices_and_nulls() -> None:
    texts = pa.array(["far away in memory", None, "b", "c", None, "a"]).slice(2, 4)

    numbers, refused = pack(texts)

    assert not refused.any()
    assert unpack(numbers).to_pylist() == ["b", "c", "", "a"]
