"""KCore: the fixpoint, by construction and by a naive loop."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_cli.errors import ConfigError
from recsys_cli.events import Message
from recsys_cli.features.columns import ROW_NUMBER
from recsys_cli.ops import KCore
from recsys_cli.ops.plan import FeaturePlan
from tests.rows import plain_rows, send, tables

# A chain: without the item at one end, the adjacent user is rare, then the next item, and so on to the middle.
CHAIN = pa.table({"user": [1, 1, 2, 2, 3, 3, 4, 4], "item": [0, 1, 1, 2, 2, 3, 3, 4]})


def test_rounds_continue_to_the_fixpoint() -> None:
    sent = send(CHAIN, KCore(columns={"user": 2, "item": 2}))
    assert sent.numbers == []
    assert sent.events == [Message("KCore user ≥ 2, item ≥ 2: converged after 4 rounds")]
    closed = pa.concat_tables([CHAIN, pa.table({"user": [4], "item": [0]})])
    assert send(closed, KCore(columns={"user": 2, "item": 2})).numbers == [0, 1, 2, 3, 4, 5, 6, 8]  # item 4 has one row


def test_a_block_with_a_fringe_is_the_block() -> None:
    block = [(user, item) for user in range(4) for item in range(3)]
    fringe = [(0, 10), (1, 10), (20, 0), (20, 1), (20, 10)]
    rows = fringe[:3] + block + fringe[3:]
    table = pa.table({"user": [f"u{user}" for user, _ in rows], "item": [item for _, item in rows]})
    assert send(table, KCore(columns={"user": 3, "item": 4})).numbers == list(range(3, 15))


def test_single_column_converges_in_one_round_and_drops_nulls() -> None:
    table = pa.table({"user": ["a", None, "a", None, "b"], "item": [1.0, 2.0, 3.0, 4.0, 5.0]})
    assert send(table, KCore(columns={"user": 2})).numbers == [0, 2]
    assert send(table, KCore(columns={"user": 1})).numbers == [0, 2, 4]
    assert send(table.slice(0, 0), KCore(columns={"user": 1})).numbers == []
    assert send(table.set_column(0, "user", pa.nulls(5)), KCore(columns={"user": 1})).numbers == []


def test_list_column_is_refused() -> None:
    table = pa.schema([("user", pa.list_(pa.int64())), ("item", pa.int64()), ("rating", pa.float64())])
    plan = FeaturePlan.model_validate({
        "user": "user", "item": "item", "label": "rating",
        "ops": [{"op": "KCore", "columns": {"user": 2}}, {"op": "Categorify", "columns": ["user", "item"]}],
    })  # fmt: skip
    with pytest.raises(ConfigError, match=r"KCore user ≥ 2: 'user' holds a list in each row"):
        plan.compile({"interactions": table})


def reference(table: pa.Table, least: dict[str, int]) -> list[int]:
    rows = [row for row in plain_rows(table) if all(row[name] is not None for name in least)]
    while True:
        counts = {name: Counter(row[name] for row in rows) for name in least}
        left = [row for row in rows if all(counts[name][row[name]] >= enough for name, enough in least.items())]
        if len(left) == len(rows):
            return [row[ROW_NUMBER] for row in rows]
        rows = left


@settings(max_examples=60, derandomize=True)
@given(
    tables(),
    st.dictionaries(st.sampled_from(["user", "item", "time"]), st.integers(1, 4), min_size=1),
    st.integers(1, 5),
)
def test_k_core_equals_a_naive_loop(table: pa.Table, least: dict[str, int], size: int) -> None:
    assert send(table, KCore(columns=least), size=size).numbers == reference(table, least)
