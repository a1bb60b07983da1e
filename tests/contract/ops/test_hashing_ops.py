"""HashBucket and HashedCross: the same ids on every engine, and those that a hash written out by hand gives."""

from __future__ import annotations

import datetime
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from recsys_cli.errors import ConfigError
from recsys_cli.ops import Categorify, HashBucket, HashedCross, JoinExternal
from tests.engines import NAN, PARTICIPANTS, answer, every_participant, interactions, needs_all, plan
from tests.strategies import Case, cases

KEYS = Categorify(columns=("user", "item"))
DAY = datetime.date(1970, 1, 4)
ROWS = interactions({
    "user": [1, 2, 3, 4],
    "item": [1, 1, 2, 2],
    "whole": pa.array([1, 2, None, 3], pa.int8()),
    "big": pa.array([3, 2, 1, 2**64 - 1], pa.uint64()),
    "real": [0.0, -0.0, NAN, 1.5],
    "flag": [True, False, None, True],
    "day": [DAY, None, DAY, DAY],
    "text": ["", "a", None, "12345678 and more"],
    "word": pa.array(["a", None, "", "a"]).dictionary_encode(),
    "nothing": pa.nulls(4),
    "list": pa.array([["a", None], [], None, ["", "a"]]),
    "rating": [1.0] * 4,
})  # fmt: skip
HASHED = ("whole", "big", "real", "flag", "day", "text", "word", "nothing", "list")
ITEMS = pa.table({"item": [1, 2], "kind": ["a", None], "kinds": pa.array([["a", ""], None])})

MASK = 2**64 - 1


def splitmix(number: int, start: int) -> int:
    """Return one output of SplitMix64, as it is published."""
    z = (start + number * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
    return z ^ z >> 31


def hashed(value: Any) -> int:
    if isinstance(value, str):
        data = value.encode()
        found = splitmix(len(data), splitmix(2, 0))
        for start in range(0, len(data), 8):
            found = splitmix(int.from_bytes(data[start : start + 8], "little"), found)
        return found
    return splitmix(int(value) & MASK, 0)


def code(found: int, num_buckets: int) -> int:
    return 3 + ((found >> 32) * num_buckets >> 32)


@every_participant
def test_values_become_three_and_the_bucket_of_their_hash(name: str, tmp_path: Path) -> None:
    buckets = {column: 1000 + at for at, column in enumerate(HASHED)}
    case = Case({"train": ROWS, "valid": ROWS}, {}, plan(KEYS, HashBucket(columns=HASHED, num_buckets=buckets)))
    found = answer(name, case, tmp_path)
    real = int.from_bytes(b"\0\0\0\0\0\0\xf8\x3f", "little")  # 1.5 as IEEE 754 writes it
    expected: dict[str, list[Any]] = {
        "whole": [1, 2, None, 3], "big": [3, 2, 1, 2**64 - 1], "real": [0, 0, None, real], "flag": [1, 0, None, 1],
        "day": [3, None, 3, 3], "text": ["", "a", None, "12345678 and more"], "word": ["a", None, "", "a"],
        "nothing": [None] * 4, "list": [["a", None], [], [], ["", "a"]],
    }  # fmt: skip
    schema = found.fitted.schema("star")
    for column, values in expected.items():
        ids = lambda value, column=column: 1 if value is None else code(hashed(value), buckets[column])  # noqa: E731
        assert found.column(column, "valid") == [
            [ids(v) for v in value] if isinstance(value, list) else ids(value) for value in values
        ], column
        assert (schema[column].cardinality, schema[column].buckets) == (3 + buckets[column], 0)
        assert schema[column].vocabulary is None
    assert found.shards["star", "valid", 0].schema.field("list").type == pa.list_(pa.int32())


@every_participant
def test_crosses_are_named_by_their_columns_and_know_their_order(name: str, tmp_path: Path) -> None:
    ops = (
        HashedCross(columns=("text", "whole"), num_buckets=10**6),
        HashedCross(columns=("whole", "text"), num_buckets=10**6),
        HashedCross(columns=("big", "flag", "day"), num_buckets=7),
    )
    case = Case({"train": ROWS, "valid": ROWS}, {}, plan(KEYS, *ops))
    found = answer(name, case, tmp_path)
    pairs = [("", 1), ("a", 2), None, ("12345678 and more", 3)]

    def of(first: Any, second: Any) -> int:
        return splitmix(hashed(first), hashed(second))

    expected = [1 if pair is None else code(of(*pair), 10**6) for pair in pairs]
    assert found.column("text_X_whole", "valid") == expected
    turned = [1 if pair is None else code(of(*pair[::-1]), 10**6) for pair in pairs]
    assert found.column("whole_X_text", "valid") == turned != expected
    triples = [(3, 1, 3), None, None, (-1, 1, 3)]
    crossed = [1 if t is None else code(splitmix(of(*t[:2]), hashed(t[2])), 7) for t in triples]
    assert found.column("big_X_flag_X_day", "valid") == crossed
    assert found.fitted.schema("star")["big_X_flag_X_day"].cardinality == 10


@every_participant
def test_columns_of_a_table(name: str, tmp_path: Path) -> None:
    ops = (
        JoinExternal(table="items", on="item", columns=("kind", "kinds")),
        KEYS,
        HashedCross(columns=("kind", "text"), num_buckets=100),
        HashBucket(columns=("kind", "kinds", "text"), num_buckets=50),
    )
    found = answer(name, Case({"train": ROWS, "valid": ROWS}, {"items": ITEMS}, plan(*ops)), tmp_path)
    a, empty = code(hashed("a"), 50), code(hashed(""), 50)
    assert found.tables["item"].to_pydict() == {"kind": [1, 1, 1, a, 1], "kinds": [[], [], [], [a, empty], []]}
    assert found.column("kinds", "valid", layout="flat") == [[a, empty], [a, empty], [], []]
    crossed = [code(splitmix(hashed("a"), hashed(text)), 100) for text in ("", "a")]
    assert found.column("kind_X_text", "valid") == [*crossed, 1, 1]


@every_participant
def test_no_rows(name: str, tmp_path: Path) -> None:
    ops = (HashBucket(columns=HASHED, num_buckets=5), HashedCross(columns=("user", "item"), num_buckets=5), KEYS)
    found = answer(name, Case({"train": ROWS.slice(0, 0), "valid": ROWS.slice(0, 1)}, {}, plan(*ops)), tmp_path)
    assert len(found.column("user_X_item", "valid")) == 1
    assert found.fitted.schema("star")["list"].cardinality == 8


@pytest.mark.parametrize(
    ("op", "problem"),
    [
        (HashBucket(columns="money", num_buckets=3), r"'money' holds decimal128\(5, 2\), which cannot be hashed"),
        (HashedCross(columns=("item", "list"), num_buckets=3), "'list' holds a list in each row"),
        (HashedCross(columns=("item", "money"), num_buckets=3), "'money' holds decimal"),
    ],
)
def test_columns_that_cannot_be_hashed(op: Any, problem: str) -> None:
    schema = ROWS.schema.append(pa.field("money", pa.decimal128(5, 2)))
    with pytest.raises(ConfigError, match=problem):
        plan(KEYS, op).compile({"interactions": schema})


@pytest.mark.parametrize(
    ("op", "options", "problem"),
    [
        (HashBucket, {"columns": ("a", "b"), "num_buckets": {"a": 3}}, "num_buckets names"),
        (HashBucket, {"columns": ("a",), "num_buckets": 0}, "greater than or equal to 1"),
        (HashBucket, {"columns": ("a",), "num_buckets": {"a": 2**31}}, "less than or equal to"),
        (HashedCross, {"columns": ("a",), "num_buckets": 3}, "at least 2"),
    ],
)
def test_options_that_do_not_fit(op: Any, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        op(**options)


@needs_all
@settings(max_examples=10, derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(cases(), st.integers(1, 9))
def test_engines_agree(case: Case, num_buckets: int) -> None:
    join, _, label = case.plan.ops
    ops = (
        join, HashedCross(columns=("item", "count", "user"), num_buckets=num_buckets),
        KEYS, HashedCross(columns=("year", "item"), num_buckets=num_buckets),
        HashBucket(columns=("tags", "genres", "year"), num_buckets=num_buckets), label,
    )  # fmt: skip
    case = Case(case.splits, case.tables, case.plan.model_copy(update={"ops": ops, "known": ("item_X_count_X_user",)}))
    files = []
    for name in PARTICIPANTS:
        with tempfile.TemporaryDirectory() as folder:
            files.append(answer(name, case, Path(folder)).files())
    assert files[0] == files[1] == files[2]
