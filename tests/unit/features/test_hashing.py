"""Hashes and keys of values, stable over releases."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsys_cli.features.hashing import (
    below,
    can_hash,
    hash_counters,
    hash_packed,
    hash_value,
    hash_values,
    mix,
    permutation,
)
from recsys_cli.features.string_keys import BLOCK_ROWS, Words, pack, unpack


def test_hash_counters_is_splitmix64() -> None:
    # The published sequence of the reference implementation started at 1234567.
    hashes = hash_counters(np.arange(1, 4, dtype=np.uint64), 1234567)
    assert hashes.tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_mix_separates_streams() -> None:
    keys = {mix(seed, stream, shard) for seed in range(10) for stream in range(3) for shard in range(10)}
    assert len(keys) == 300


def test_permutation_never_changes() -> None:
    assert permutation(10, mix(42, 3, 0)).tolist() == [8, 1, 6, 9, 7, 3, 0, 5, 2, 4]


@pytest.mark.parametrize("size", [0, 1, 2, 1000, 70_001])
def test_permutation_has_each_number_once(size: int) -> None:
    assert np.array_equal(np.sort(permutation(size, 7)), np.arange(size))


def test_permutation_mixes() -> None:
    order = permutation(100_000, 1)
    assert abs(np.corrcoef(order, np.arange(100_000))[0, 1]) < 0.02
    assert abs(order[:10_000].mean() / 50_000 - 1) < 0.05


def test_below_is_even() -> None:
    counts = np.bincount(below(hash_counters(np.arange(130_000, dtype=np.uint64), 3), 13).astype(int), minlength=13)
    assert len(counts) == 13
    assert np.abs(counts / 10_000 - 1).max() < 0.05


SEED_0 = [16294208416658607535, 7960286522194355700, 487617019471545679, 17909611376780542444]
"""The published sequence of SplitMix64 started at 0."""


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int8(), [1, 2, 3, 4]),
        (pa.uint64(), [1, 2, 3, 4]),
        (pa.date32(), [datetime.date(1970, 1, 1 + day) for day in range(1, 5)]),
        (pa.timestamp("us", tz="UTC"), [1, 2, 3, 4]),
        (pa.time32("ms"), [datetime.time(microsecond=1000 * number) for number in range(1, 5)]),
        (pa.duration("ns"), [1, 2, 3, 4]),
    ],
)
def test_whole_numbers_are_outputs_of_splitmix64(kind: pa.DataType, values: Sequence[Any]) -> None:
    assert hash_values(pa.array(values, kind)).tolist() == SEED_0


def test_the_same_number_has_the_same_hash_whatever_its_type() -> None:
    signed = [
        hash_values(pa.array([-1, 0, 1], kind)).tolist() for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())
    ]
    assert all(found == signed[0] for found in signed)
    assert hash_values(pa.array([2**64 - 1], pa.uint64()))[0] == signed[0][0]
    assert hash_values(pa.array([False, True])).tolist() == signed[0][1:]
    single, double = (hash_values(pa.array([0.5, -0.0, 0.0, 1.0], kind)) for kind in (pa.float32(), pa.float64()))
    assert single.tolist() == double.tolist()
    assert double[1] == double[2]
    assert double[0] == hash_counters(np.array([0x3FE0000000000000], dtype=np.uint64), 0)[0]


def test_hashes_of_texts_never_change() -> None:
    texts = ["", "a", "é", "12345678", "123456789", "a text of more than two words"]
    hashes = [  # computed with plain integers
        *(14804455941960215590, 15173407504899206757, 2387071600950105396),
        *(7738164865401984510, 6658699277484999069, 16159975736770418894),
    ]
    for values in (pa.array(texts), pa.array(texts).cast(pa.large_binary()), pa.array(texts).dictionary_encode()):
        assert hash_values(values).tolist() == hashes


@pytest.mark.parametrize("count", [1, 16, 17, 40])
def test_long_texts_hash_in_plain_python_as_in_numpy(count: int) -> None:
    texts = ["a", "", *(f"{number:x}é" * (7 * number + 90) for number in range(count)), "b"]
    assert hash_values(pa.array(texts).slice(1)).tolist() == [hash_value(text) for text in texts[1:]]


def test_a_text_has_the_same_hash_at_any_offset() -> None:
    texts = pa.array([f"{number:x}" * (number % 7) for number in range(BLOCK_ROWS + 100)])
    hashes = hash_values(texts)
    assert np.array_equal(hash_values(texts.slice(12_345)), hashes[12_345:])
    assert hash_values(texts.take(pa.array([BLOCK_ROWS + 1, 5]))).tolist() == hashes[[BLOCK_ROWS + 1, 5]].tolist()


def test_distinct_texts_have_distinct_hashes() -> None:
    texts = ["", "\0", "\0\0", "a", "a\0", "A", "aa", "1234567\0", "1234567", "1234567\0\0"]
    texts += [f"{number}" for number in range(100_000)]
    assert len(np.unique(hash_values(pa.array(texts)))) == len(texts)


def test_hashes_of_near_texts_are_even() -> None:
    texts = pa.array([f"user-{number:08d}" for number in range(130_000)])
    counts = np.bincount(below(hash_values(texts), 13).astype(int), minlength=13)
    assert np.abs(counts / 10_000 - 1).max() < 0.05


def test_nulls_do_not_stop_a_hash() -> None:
    for kind in (pa.int8(), pa.float32(), pa.bool_(), pa.string(), pa.date32(), pa.null()):
        assert len(hash_values(pa.array([None, None], kind))) == 2
    assert len(hash_values(pa.array([None, "a"]).dictionary_encode())) == 2
    assert not len(hash_values(pa.array([], pa.string())))


def test_types_that_cannot_be_hashed() -> None:
    assert not any(map(can_hash, [pa.decimal128(3), pa.list_(pa.int8()), pa.struct({"a": pa.int8()})]))
    assert all(map(can_hash, [pa.int8(), pa.string(), pa.null(), pa.dictionary(pa.int8(), pa.string()), pa.date64()]))


@pytest.mark.parametrize("texts", [["12345678", "abcdefgh"], ["a", "", "12345678", "é", "1234567"], []])
def test_packed_texts_hash_as_the_texts_do(texts: list[str]) -> None:
    values = pa.array(texts, pa.string())
    assert hash_packed(pack(values)[0]).tolist() == hash_values(values).tolist()


TEXTS = st.lists(st.text(max_size=12) | st.sampled_from(["", "\0", "a\0", "\0a", "12345678", "1234567\0", "123456789"]))


def test_words_are_eight_bytes_each_and_zeros_behind_the_last() -> None:
    words = Words.of(pa.array(["ab", "", "12345678é"]))
    assert words.lengths.tolist() == [2, 0, 10]
    first = [word.to_bytes(8, "little") for word in words.word(0).tolist()]
    assert first == [b"ab".ljust(8, b"\0"), bytes(8), b"12345678"]
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


@pytest.mark.parametrize(
    ("texts", "refused", "unpacked"),
    [
        (
            pa.array(["x", None, "12345678", "", None, "abcdefg\0", "abcdefgh"]).slice(1),
            [4],
            "|12345678|||abcdefg|abcdefgh",
        ),
        (pa.array(["far away in memory", None, "b", "c", None, "a"]).slice(2, 4), [], "b|c||a"),
    ],
    ids=["eight bytes", "a slice"],
)
def test_texts_with_nulls_between(texts: pa.Array, refused: list[int], unpacked: str) -> None:
    numbers, refusals = pack(texts)
    assert np.flatnonzero(refusals).tolist() == refused
    assert unpack(numbers).to_pylist() == unpacked.split("|")
