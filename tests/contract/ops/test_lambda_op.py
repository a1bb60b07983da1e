"""LambdaOp's functions: answers known by hand, on every engine."""

from __future__ import annotations

import datetime
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from recsys_cli.errors import ConfigError
from recsys_cli.ops import Categorify, LambdaOp
from recsys_cli.ops.fitted_plan import FittedPlan
from tests.engines import NAN, PARTICIPANTS, engine_of, every_participant, needs_all, plan
from tests.strategies import known_state

UTC = datetime.UTC
ROWS = pa.table({
    "user": [1, 1, 1, 1],
    "item": [1, 1, 1, 1],
    "rating": [1.0, 2.0, 3.0, 4.0],
    "real": [2.5, -0.5, None, NAN],
    "whole": pa.array([3, -3, None, 0], pa.int16()),
    "great": pa.array([3, 2**64 - 1, None, 0], pa.uint64()),
    "flag": [True, False, None, True],
    "text": ["ÅBC", "", None, "İΣ"],
    "my text": ["abc", "x", "y", "z"],
    "seconds": [951_782_400, -1, None, 253_402_300_800],  # 2000-02-29, the last of 1969, and the first of the year 10000
    "real seconds": [951_782_400.9, -0.5, math.inf, NAN],
    "day": [datetime.date(2024, 2, 29), datetime.date(1, 1, 1), None, datetime.date(1969, 12, 28)],
    "time": pa.array([1_709_251_199_999, -1, None, 0], pa.timestamp("ms")),
    "here": pa.array([1_709_251_199, -1, None, 0], pa.timestamp("s", tz="Asia/Tokyo")),
    "nanos": pa.array([1_709_251_199_999_999_999, -1, None, 0], pa.timestamp("ns")),
    "word": pa.array(["Aa", "bB", None, "Aa"]).dictionary_encode(),
})  # fmt: skip
EXPRESSIONS: list[tuple[str, str, list[Any]]] = [
    ("is_null(real)", "int8", [0, 0, 1, 1]),
    ("is_null(text) or is_null(flag)", "int8", [0, 0, 1, 0]),
    ("is_null(whole / whole)", "int8", [0, 0, 1, 1]),
    ("is_null(is_null(real))", "int8", [0, 0, 0, 0]),
    ("is_null(great)", "int8", [0, 1, 1, 0]),
    ("great > 2", "float32", [1.0, NAN, NAN, 0.0]),
    ("is_null(1)", "int8", [0, 0, 0, 0]),
    ("is_null(day)", "int8", [0, 0, 1, 0]),
    ("if(whole > 0, 1, 2)", "float32", [1.0, 2.0, NAN, 2.0]),
    ("if(is_null(real), 0, real)", "float64", [2.5, -0.5, 0.0, 0.0]),
    ("if(whole, real, rating)", "float64", [2.5, -0.5, NAN, 4.0]),
    ("if(flag, whole, real)", "float64", [3.0, -0.5, NAN, 0.0]),
    ("if(flag, flag, whole)", "int64", [1, -3, 0, 1]),
    ("if(flag, flag, whole > 9)", "float32", [1.0, 0.0, NAN, 1.0]),
    ("if(text == '', 'none', lower(text)) == 'none'", "float32", [0.0, 1.0, NAN, 0.0]),
    ("if(is_null(text), 'none', 'some') == 'none'", "int8", [0, 0, 1, 0]),
    ("if(True, rating, 0)", "int8", [1, 2, 3, 4]),
    ("if(False, real, 7)", "float64", [7.0, 7.0, 7.0, 7.0]),
    ("if(flag, 9007199254740993, 9007199254740995)", "int64", [2**53 + 1, 2**53 + 3, 0, 2**53 + 1]),
    ("rating if rating > 2 else -rating", "int8", [-1, -2, 3, 4]),
    ("if(whole > 0, 1, if(whole < 0, -1, 0))", "int8", [1, -1, 0, 0]),
    ("log(rating)", "float32", [0.0, math.log(2), math.log(3), math.log(4)]),
    ("log(real)", "float32", [math.log(2.5), NAN, NAN, NAN]),
    ("log(0)", "float32", [-math.inf] * 4),
    ("log(whole + 3)", "float32", [math.log(6), -math.inf, NAN, math.log(3)]),
    ("round(real)", "float64", [2.0, -0.0, NAN, NAN]),
    ("round(rating + 0.5)", "int8", [2, 2, 4, 4]),
    ("round(whole)", "int64", [3, -3, 0, 0]),
    ("max(rating, 2.5)", "float32", [2.5, 2.5, 3.0, 4.0]),
    ("min(whole, 0)", "float32", [0.0, -3.0, NAN, 0.0]),
    ("max(whole, real)", "float64", [3.0, -0.5, NAN, NAN]),
    ("max(flag, 0)", "int8", [1, 0, 0, 1]),
    ("1 / max(-0.0, 0.0)", "float32", [-math.inf] * 4),  # equal: the first stays
    ("clip(rating, 2, 3)", "float64", [2.0, 2.0, 3.0, 3.0]),
    ("clip(whole, -1, 1)", "int8", [1, -1, 0, 0]),
    ("clip(rating, 3, 2)", "int8", [2, 2, 2, 2]),
    ("clip(rating, real, 9)", "float64", [2.5, 2.0, NAN, NAN]),
    ("clip(1, 2, 3)", "int8", [2, 2, 2, 2]),
    ("year(seconds)", "float32", [2000.0, 1969.0, NAN, NAN]),
    ("month(seconds)", "int8", [2, 12, 0, 0]),
    ("day(seconds)", "int8", [29, 31, 0, 0]),
    ("weekday(seconds)", "float32", [1.0, 2.0, NAN, NAN]),
    ("hour(seconds)", "float32", [0.0, 23.0, NAN, NAN]),
    ("minute(seconds)", "float32", [0.0, 59.0, NAN, NAN]),
    ("year(column('real seconds'))", "float32", [2000.0, 1969.0, NAN, NAN]),
    ("day", "int64", [1_709_164_800, -62_135_596_800, 0, -345_600]),
    ("year(day)", "int16", [2024, 1, 0, 1969]),
    ("month(day)", "int16", [2, 1, 0, 12]),
    ("day(day)", "int16", [29, 1, 0, 28]),
    ("weekday(day)", "float32", [3.0, 0.0, NAN, 6.0]),
    ("time", "int64", [1_709_251_199, -1, 0, 0]),
    ("nanos == time", "float32", [1.0, 1.0, NAN, 1.0]),
    ("time / 86400 > 19782", "int8", [1, 0, 0, 0]),
    ("hour(time)", "float32", [23.0, 23.0, NAN, 0.0]),
    ("hour(here)", "float32", [23.0, 23.0, NAN, 0.0]),
    ("minute(nanos)", "float32", [59.0, 59.0, NAN, 0.0]),
    ("year(0)", "int16", [1970, 1970, 1970, 1970]),
    ("length(text)", "float32", [3.0, 0.0, NAN, 2.0]),
    ("length('日本')", "int8", [2, 2, 2, 2]),
    ("length(word) + 1", "int8", [3, 3, 0, 3]),
    ("lower(text) == 'åbc'", "float32", [1.0, 0.0, NAN, 0.0]),
    ("lower(text) == 'iσ'", "int8", [0, 0, 0, 1]),
    ("lower(word) == lower('AA')", "float32", [1.0, 0.0, NAN, 1.0]),
    ("lower('ÅB') == 'åb'", "int8", [1, 1, 1, 1]),
    ("column('my text') == 'abc'", "int8", [1, 0, 0, 0]),
]  # fmt: skip
OPS = [LambdaOp(expression=e, output=f"o{i}", dtype=d) for i, (e, d, _) in enumerate(EXPRESSIONS)]
EMPTY = pa.table({"value": pa.array([], pa.int64()), "count": pa.array([], pa.int64())})


def compute(name: str, folder: Path, ops: list[LambdaOp], rows: pa.Table) -> pa.Table:
    """Send rows through expressions."""
    met = LambdaOp(expression="1", output="met", dtype="int8")  # the label: none of what is computed is made of it
    case = plan(Categorify(columns=("user", "item")), met, *ops, label="met")
    engine = engine_of(name, folder)
    fitted = FittedPlan(case, {"interactions": rows.schema}, known_state(case, {"user": EMPTY, "item": EMPTY}))
    return engine.apply(fitted.program.transforms(None), fitted, rows)


@every_participant
def test_functions(name: str, tmp_path: Path) -> None:
    made = compute(name, tmp_path, OPS, ROWS)
    for index, (expression, dtype, expected) in enumerate(EXPRESSIONS):
        column = made.column(f"o{index}")
        assert column.type == pa.type_for_alias(dtype), expression
        assert repr(column.to_pylist()) == repr(pa.array(expected, column.type).to_pylist()), (expression, dtype)


@every_participant
def test_functions_of_no_rows(name: str, tmp_path: Path) -> None:
    made = compute(name, tmp_path, OPS, ROWS.slice(0, 0))
    assert made.num_rows == 0
    assert [str(made.schema.field(op.output).type) for op in OPS] == [
        {"float32": "float", "float64": "double"}.get(op.dtype, op.dtype) for op in OPS
    ]


@every_participant
def test_a_wrong_argument_is_named_before_any_work(name: str) -> None:
    case = plan(Categorify(columns=("user", "item")), LambdaOp(expression="1 + length(rating)", output="o"))
    with pytest.raises(ConfigError, match=r"LambdaOp '1 \+ length\(rating\)': length takes text, but 'rating'"):
        case.compile({"interactions": ROWS.schema})


TIMES = st.one_of(st.integers(-(10**11), 10**12), st.integers(-100_000, 100_000), st.none())
PARTS = [("year", "%Y"), ("month", "%m"), ("day", "%d"), ("hour", "%H"), ("minute", "%M")]


@needs_all
@settings(max_examples=10, derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(st.lists(TIMES, min_size=1, max_size=30), st.lists(st.none() | st.text(), min_size=30, max_size=30))
def test_engines_agree_on_parts_of_dates_and_lower_case(seconds: list[int | None], texts: list[str | None]) -> None:
    size = len(seconds)
    texts = [None if text is None else text.replace("\0", "") for text in texts[:size]]
    rows = pa.table({
        "user": [1] * size, "item": [1] * size, "rating": [1.0] * size,
        "t": pa.array(seconds, pa.int64()), "text": pa.array(texts, pa.string()),
    })  # fmt: skip
    ops = [LambdaOp(expression=f"{part}(t)", output=part, dtype="int32") for part, _ in [*PARTS, ("weekday", "")]]
    ops += [
        LambdaOp(expression=expression, output=f"o{place}", dtype="float64")
        for place, expression in enumerate(["lower(text) < text", "length(lower(text))", "log(t) + round(t / 7)"])
    ]
    made = []
    for name in PARTICIPANTS:
        with tempfile.TemporaryDirectory() as folder:
            found = compute(name, Path(folder), ops, rows)
            made.append({op.output: found.column(op.output).to_pylist() for op in ops})
    sums = [one.pop("o2") for one in made]  # logarithms of the libraries differ in the last bit
    assert repr(made[0]) == repr(made[1]) == repr(made[2])
    for other in sums[1:]:
        np.testing.assert_allclose(np.array(other, float), np.array(sums[0], float), rtol=1e-12)
    for row, second in enumerate(seconds):
        if second is not None and abs(second) < 10**10:
            when = datetime.datetime(1970, 1, 1, tzinfo=UTC) + datetime.timedelta(seconds=second)
            assert [made[0][part][row] for part, _ in PARTS] == [int(when.strftime(form)) for _, form in PARTS]
            assert made[0]["weekday"][row] == when.weekday()
