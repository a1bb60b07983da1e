"""Hypothesis strategies that more than one test file uses: small data with all that is known to go wrong."""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import strategies as st

from recsys_cli.features.columns import REST
from recsys_cli.ops import Categorify, JoinExternal, LambdaOp
from recsys_cli.ops.plan import FeaturePlan

TEXTS = st.sampled_from(["", "a", "b", "B", "é", "e\u0301", "日本", "🎬", "a b", "nan", "0"])
WHOLE = st.sampled_from([0, 1, 2, 3, -1, 2**53 + 1, 2**53, -(2**63), 2**63 - 1])
REAL = st.sampled_from([0.0, -0.0, 1.5, 3.0, 4.0, float("nan"), float("inf"), -1e300])
SMALL = st.sampled_from([0, 1, 2, -128, 127])
VALUES: dict[pa.DataType, st.SearchStrategy] = {
    pa.int64(): WHOLE, pa.int8(): SMALL, pa.string(): TEXTS, pa.float64(): REAL, pa.bool_(): st.booleans(),
}  # fmt: skip
"""Raw types of a column that gets ids, few values of each: so there are ties, repetitions and unseen ones."""


@dataclass(frozen=True)
class Case:
    """What goes into the ETL.

    Attributes:
        splits: Raw interactions by split, train with at least one row.
        tables: The tables to join.
        plan: What to compute.
    """

    splits: dict[str, pa.Table]
    tables: dict[str, pa.Table]
    plan: FeaturePlan


_EXPRESSIONS = [
    "rating > 3", "rating", "rating / count", "count - 1 > rating and flag", "flag or rating != rating", "not count",
    "-count * 3", "time == count", "1", "flag + flag * 2", "count / 0", "not (flag and count > 0)",
    "is_null(rating) or flag", "if(rating > 1, count, rating)", "if(flag, text, 'a') < 'b'", "clip(rating, count, 4)",
    "max(count, rating) / min(rating, count)", "log(rating)", "round(rating / 2)", "weekday(when) + year(when)",
    "hour(rating * 5000)", "length(lower(text))", "lower(text) == text", "when - time",
]  # fmt: skip
EXPRESSIONS = st.sampled_from(_EXPRESSIONS)
DTYPES = st.sampled_from(["int8", "int16", "int32", "int64", "float32", "float64"])


def _column(kind: pa.DataType, size: int, *, nullable: bool = True) -> st.SearchStrategy[pa.Array]:
    values = VALUES[kind] | st.none() if nullable else VALUES[kind]
    some = st.lists(values, min_size=size, max_size=size)
    column = st.one_of(some, st.just([None] * size)) if nullable else some
    return column.map(lambda drawn: pa.array(drawn, kind))


def _lists(kind: pa.DataType, size: int) -> st.SearchStrategy[pa.Array]:
    row = st.none() | st.lists(VALUES[kind] | st.none(), max_size=3)
    return st.lists(row, min_size=size, max_size=size).map(lambda drawn: pa.array(drawn, pa.list_(kind)))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw interactions of a few rows with nulls anywhere, and a table with lists, numbers and keys that may not match."""
    kinds = st.sampled_from(list(VALUES))
    user, item, tag, year = (draw(kinds) for _ in range(4))

    def interactions(rows: int) -> pa.Table:
        return pa.table({
            "user": draw(_column(user, rows)), "item": draw(_column(item, rows)), "tags": draw(_lists(tag, rows)),
            "rating": draw(_column(pa.float64(), rows)), "count": draw(_column(pa.int8(), rows)),
            "flag": draw(_column(pa.bool_(), rows)), "time": pa.array(range(rows), pa.int64()),
            "text": draw(_column(pa.string(), rows)), "when": draw(_column(pa.int64(), rows)).cast(pa.timestamp("us")),
        })  # fmt: skip

    keys = draw(st.lists(VALUES[item] | st.none(), max_size=6, unique_by=_same))
    size = len(keys)
    items = pa.table({
        "item": pa.array(keys, item), "genres": draw(_lists(tag, size)), "year": draw(_column(year, size)),
        "price": draw(_column(pa.int64(), size)),
    })  # fmt: skip
    plan = FeaturePlan(
        user="user", item="item", label="label", timestamp="time",
        ops=(
            JoinExternal(table="items", on="item", columns=("genres", "year", "price")),
            Categorify(columns=("user", "item", "tags", "genres", "year")),
            LambdaOp(expression=draw(EXPRESSIONS), output="label", dtype=draw(DTYPES)),
        ),
    )  # fmt: skip
    splits = {"train": interactions(draw(st.integers(1, 12)))}
    splits["valid"] = interactions(draw(st.integers(0, 4)))
    return Case(splits, {"items": items}, plan)


def _same(key: object) -> object:
    """What makes two keys of a join the same: NaN is like NaN, as for the engines."""
    return "nan" if isinstance(key, float) and key != key else key


def known_state(plan: FeaturePlan, vocabularies: Mapping[str, pa.Table]) -> dict[tuple[int, str], pa.Table]:
    """Return the state of a plan that knows vocabularies and nothing else."""
    rest = pa.table({"null": pa.array([0], pa.int64()), "unseen": pa.array([0], pa.int64())})
    state = {}
    for index, op in enumerate(plan.ops):
        if isinstance(op, Categorify):
            for column in op.columns:
                state[index, column], state[index, column + REST] = vocabularies[column], rest
    return state
