"""Lookup of raw values by sorted hashes: in memory and memory-mapped, one value and many."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_cli.errors import DataError
from recsys_cli.features.hashing import combine, hash_counters, hash_numbers, hash_value, hash_values
from recsys_cli.ops import vocabulary
from recsys_cli.ops.values import from_arrow
from recsys_cli.ops.vocabulary import ABSENT, VocabularyIndex
from recsys_cli.serving.ids import open_index, write_index

TEXTS = st.lists(
    st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(["a" * 8, "a" * 9, "\0"]), max_size=30
)
WHOLE = st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5), max_size=60)
REAL = st.lists(st.floats(allow_nan=False), max_size=60)


@given(TEXTS, WHOLE, REAL)
def test_one_value_hashes_as_a_column_of_them(texts: list[str], whole: list[int], real: list[float]) -> None:
    for values, kind in ((texts, pa.string()), (whole, pa.int64()), (real, pa.float64())):
        assert [hash_value(value) for value in values] == hash_values(pa.array(values, kind)).tolist()
    assert hash_numbers(np.array(whole, np.int64)).tolist() == hash_values(pa.array(whole, pa.int64())).tolist()
    assert hash_numbers(np.array(real)).tolist() == hash_values(pa.array(real, pa.float64())).tolist()
    hashed = hash_values(pa.array(whole, pa.int64()))
    assert [combine(int(h), int(h) >> 1) for h in hashed] == hash_counters(hashed, hashed >> np.uint64(1)).tolist()


@pytest.mark.parametrize(
    ("kind", "values", "absent"),
    [
        (pa.string(), ["", "a", "é", "a long title (1995)", "a long title (1996)", "12345678", "123456789"], "b"),
        (pa.large_string(), ["x", "y"], "12345678901234567890"),
        (pa.binary(), [b"", b"\xff\0", b"abc"], b"\xff"),
        (pa.int32(), [5, -1, 0, 2**31 - 1], 6),
        (pa.uint64(), [2**64 - 1, 0], 1),
        (pa.float64(), [0.0, -1.5, float("inf")], 2.5),
        (pa.float32(), [0.5, 16777216.0], 0.25),
        (pa.bool_(), [True], False),
        (
            pa.timestamp("us"),
            [datetime.datetime(2020, 1, 2), datetime.datetime(1960, 1, 1)],
            datetime.datetime(2020, 1, 3),
        ),
    ],
)
@pytest.mark.parametrize("repeat", [1, 20], ids=["few", "many"])
def test_position_of_a_value(kind: pa.DataType, values: list[Any], absent: Any, repeat: int, tmp_path: Path) -> None:
    built = VocabularyIndex.build(pa.array(values, kind))
    write_index(built, tmp_path / "index")
    data = from_arrow(pa.array([*values, absent] * repeat, kind)).data
    for index in (built, open_index(tmp_path / "index")):
        assert len(index) == len(values)
        assert index.positions(data).tolist() == [*range(len(values)), ABSENT] * repeat
        assert [index.position(value) for value in data.tolist()[: len(values) + 1]] == [*range(len(values)), ABSENT]


def test_zero_has_no_sign() -> None:
    assert VocabularyIndex.build([0.0, 1.0]).position(-0.0) == 0


@pytest.mark.parametrize("kind", [pa.string(), pa.int64(), pa.null()])
def test_an_empty_vocabulary_has_no_value(kind: pa.DataType, tmp_path: Path) -> None:
    write_index(VocabularyIndex.build(pa.chunked_array([], kind)), tmp_path)
    index = open_index(tmp_path)
    assert len(index) == 0
    assert index.positions(np.arange(100)).tolist() == [ABSENT] * 100
    assert index.position("a") == ABSENT


def test_values_of_a_slice_and_of_several_chunks() -> None:
    chunks = pa.chunked_array([["no", "a", "b long enough"], ["c"]]).slice(1)
    assert VocabularyIndex.build(chunks).positions(np.array(["c", "a", "b long enough", "no"], object)).tolist() == [
        2,
        0,
        1,
        -1,
    ]


def test_texts_of_one_hash_are_told_apart_by_value() -> None:
    with (
        mock.patch.object(vocabulary, "hash_values", lambda values: np.full(len(values), 7, np.uint64)),
        mock.patch.object(vocabulary, "hash_value", return_value=7),
    ):
        index = VocabularyIndex.build(["x", "y", "z"])
        assert [index.position(text) for text in ("z", "x", "y", "other")] == [2, 0, 1, ABSENT]


def test_looked_up_values_are_kept_up_to_a_limit() -> None:
    with mock.patch.object(vocabulary, "MAX_CACHED", 3):
        index = VocabularyIndex.build(list(range(100)))
        for value in range(200):
            assert index.position(value) == (value if value < 100 else ABSENT)
            assert len(index._found) <= 3


@settings(max_examples=30)
@given(st.sets(st.text(st.characters(exclude_categories=["Cs"]), max_size=20)), TEXTS)
def test_every_text_is_found_and_no_other(values: set[str], others: list[str]) -> None:
    known = sorted(values)
    index = VocabularyIndex.build(pa.array(known, pa.string()))
    for text in [*known, *others]:
        assert index.position(text) == (known.index(text) if text in values else ABSENT)


def test_a_damaged_index_is_named(tmp_path: Path) -> None:
    write_index(VocabularyIndex.build(["a"]), tmp_path)
    (tmp_path / "offsets.npy").write_bytes(b"nothing")
    with pytest.raises(DataError, match="not a vocabulary index"):
        open_index(tmp_path)
    with pytest.raises(DataError, match=r"nowhere: not a vocabulary index: .*hashes\.npy"):
        open_index(tmp_path / "nowhere")
