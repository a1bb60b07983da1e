"""Sending rows through ops of phase "rows" by hand, in batches so small and buckets so many that nothing fits together by luck."""

import datetime
import decimal
import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
from hypothesis import strategies as st

from recsys_cli.etl.filters import FilteredRows, Part, choose_rows
from recsys_cli.events import Event, Message
from recsys_cli.features.columns import ROW_NUMBER
from recsys_cli.ops import buckets, groupby
from recsys_cli.ops.program import Program, compile_plan

Row = dict[str, Any]
NAN = float("nan")


@dataclass
class Cut:
    """A table as a source of rows, a few at a time."""

    table: pa.Table
    size: int = 2
    passes: int = 0

    def schema(self) -> pa.Schema:
        return self.table.schema

    def batches(self) -> Iterator[pa.Table]:
        self.passes += 1
        for start in range(0, self.table.num_rows, self.size):
            yield self.table.slice(start, self.size)


@dataclass
class Sent:
    """What came out.

    Attributes:
        table: The rows, ROW_NUMBER among the columns.
        chosen: What was gone over.
        source: Where they came from.
        events: What was said.
    """

    table: pa.Table
    chosen: FilteredRows
    source: Cut
    events: list[Message] = field(default_factory=list)

    @property
    def numbers(self) -> list[int]:
        """The raw numbers of the rows."""
        return self.table.column(ROW_NUMBER).to_pylist()

    def column(self, name: str) -> list[Any]:
        return self.table.column(name).to_pylist()

    @property
    def counts(self) -> list[tuple[str, int, int]]:
        return [(count.name, count.rows_in, count.rows_out) for count in self.chosen.counts]


def compiled(table: pa.Table, ops: Sequence[Any], want: Sequence[str]) -> Program:
    return compile_plan(ops, want, {"interactions": table.schema})


def send(
    table: pa.Table,
    *ops: Any,
    want: Sequence[str] | None = None,
    size: int = 2,
    size_of_buckets: int = 64,
    part: Part = "train",
) -> Sent:
    """Send a table through ops; `want` are the columns that somebody after them needs, by default all raw ones."""
    program = compiled(table, ops, table.column_names if want is None else want)
    assert not program.problems
    source = Cut(table.select(list(program.reads)), size)
    events: list[Message] = []

    def told(event: Event) -> None:
        if isinstance(event, Message):
            events.append(event)

    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(buckets, "bucket_bytes", return_value=size_of_buckets),
        mock.patch.object(groupby, "OUT_ROWS", 3),
    ):
        chosen = choose_rows(program, source, Path(folder) / "rows", told, part=part)
        batches = list(chosen.batches())
        assert [repr(batch.to_pydict()) for batch in chosen.batches()] == [repr(batch.to_pydict()) for batch in batches]
        assert all(batch.num_rows for batch in batches)
        chosen.discard()
        assert not [path for path in Path(folder).rglob("*") if path.is_file()]
    schema = chosen.schema()
    assert all(batch.schema == schema for batch in batches)
    assert all(column.num_chunks == 1 for batch in batches for column in batch.columns)
    return Sent(pa.concat_tables([schema.empty_table(), *batches]), chosen, source, events)


def plain_rows(table: pa.Table) -> list[Row]:
    """Return rows as the reference looks at them: NaN is null, -0.0 is 0.0, and each has its number."""
    rows = [{**row, ROW_NUMBER: number} for number, row in enumerate(table.to_pylist())]
    return [{name: _plain(value) for name, value in row.items()} for row in rows]


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return None if math.isnan(value) else value + 0.0
    return value


def in_order(rows: Sequence[Row], order_by: Sequence[str]) -> list[Row]:
    """Return rows by some columns, nulls last, then by their numbers."""
    return sorted(
        rows, key=lambda row: (*((row[n] is None, 0 if row[n] is None else row[n]) for n in order_by), row[ROW_NUMBER])
    )


def close(found: Any, expected: Any) -> bool:
    """Whether two answers are the same, floats nearly."""
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(close, found, expected))
    if isinstance(found, float) and isinstance(expected, float):
        return math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-3)
    return found == expected


USERS = {pa.int64(): st.sampled_from([0, 1, -1, 2**62]), pa.string(): st.sampled_from(["", "a", "é", "a b"]),
         pa.float64(): st.sampled_from([0.0, -0.0, 1.5, NAN]), pa.bool_(): st.booleans()}  # fmt: skip
TIMES = {pa.int64(): st.integers(-3, 3), pa.float64(): st.sampled_from([-1.0, 0.0, 2.5, NAN]),
         pa.string(): st.sampled_from(["a", "b", "é"])}  # fmt: skip
VALUES = {pa.int64(): st.sampled_from([0, 1, 5, -(2**63), 2**63 - 1, 2**53 + 1]), pa.int8(): st.integers(-128, 127),
          pa.float64(): st.sampled_from([0.0, 1.5, -2.0, NAN]), pa.bool_(): st.booleans()}  # fmt: skip


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Draw interactions of few users and items, with nulls, ties in time and values at the ends of their types."""
    size = draw(st.integers(0, 14))

    def column(kinds: dict[pa.DataType, st.SearchStrategy[Any]]) -> pa.Array:
        kind = draw(st.sampled_from(list(kinds)))
        return pa.array(draw(st.lists(kinds[kind] | st.none(), min_size=size, max_size=size)), kind)

    return pa.table({"user": column(USERS), "item": column(USERS), "time": column(TIMES), "value": column(VALUES)})


DAY = datetime.date
ORDERED: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [-128, -1, 0, 127]),
    (pa.int64(), [-(2**63), -1, 0, 2**63 - 1]),
    (pa.uint64(), [0, 1, 2**63, 2**64 - 1]),
    (pa.uint8(), [0, 255]),
    (pa.float64(), [float("-inf"), -1e300, -5e-324, 0.0, 5e-324, 1.0, float("inf")]),
    (pa.float32(), [-1.5, 0.0, 0.25]),
    (pa.bool_(), [False, True]),
    (pa.string(), ["", "B", "a", "é", "日本", "🎬"]),
    (pa.large_string(), ["a", "b"]),
    (pa.binary(), [b"", b"a", b"\xff"]),
    (pa.date32(), [DAY(1950, 1, 1), DAY(1970, 1, 1), DAY(2020, 1, 1)]),
    (pa.timestamp("ns"), [-5, 0, 7]),
    (pa.timestamp("s", "UTC"), [-5, 0, 7]),
    (pa.duration("ms"), [-5, 0, 7]),
    (pa.time64("us"), [0, 7, 86_399_999_999]),
    (pa.decimal128(10, 2), [decimal.Decimal("-1.50"), decimal.Decimal("0.00"), decimal.Decimal("3.25")]),
]  # fmt: skip
"""Values of many types, each in their order."""
