"""Values of a request in the raw types of the plan: accepted forms, and errors with row, column and value."""

from __future__ import annotations

import datetime
import json
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from recsys_cli.errors import DataError
from recsys_cli.ops.values import from_arrow, to_arrow
from recsys_cli.serving.raw_values import reader

NAN = float("nan")
MOMENT = datetime.datetime(2020, 1, 2, 3, 4, 5, 6)
LATER = datetime.timezone(datetime.timedelta(hours=1))
US = 1_577_934_245_000_006
ACCEPTED: list[tuple[pa.DataType, Any, Any]] = [
    (pa.int32(), [42, "42", 42.0, None, NAN, np.int8(-3), "-5", np.float32(7)], [42, 42, 42, None, None, -3, -5, 7]),
    (pa.int8(), [-128, 127], [-128, 127]),
    (pa.int64(), [2.0**53 - 1, 1 - 2.0**53, 2**53 + 1, str(2**53 + 1)], [2**53 - 1, 1 - 2**53, 2**53 + 1, 2**53 + 1]),
    (pa.uint64(), [2**64 - 1, "18446744073709551615", None], [2**64 - 1, 2**64 - 1, None]),
    (pa.float64(), [1, 0.1, "4.5", "inf", None, NAN, "1e3"], [1.0, 0.1, 4.5, float("inf"), None, None, 1000.0]),
    (pa.float32(), [0.1, 2**70], [0.1, 2.0**70]),
    (pa.bool_(), [True, 0, 1.0, "true", "False", None, np.True_], [True, False, True, True, False, None, True]),
    (pa.string(), ["", "é", 42, None, NAN, np.str_("x"), np.int64(7)], ["", "é", "42", None, None, "x", "7"]),
    (pa.large_string(), ["a"], ["a"]),
    (pa.binary(), [b"\xff", "é", None], [b"\xff", "é".encode(), None]),
    (pa.timestamp("us"), [MOMENT, US, None, NAN, np.datetime64(MOMENT)], [MOMENT, MOMENT, None, None, MOMENT]),
    (pa.timestamp("ms"), ["1970-01-01", "1970-01-01 00:00:01 UTC", "1970-01-01T01:00:00+01:00", "1970-01-01 00:00:00 -00:30"],
     [datetime.datetime(1970, 1, 1), datetime.datetime(1970, 1, 1, 0, 0, 1), datetime.datetime(1970, 1, 1),
      datetime.datetime(1970, 1, 1, 0, 30)]),
    (pa.timestamp("s"), [datetime.date(1970, 1, 2), datetime.datetime(1970, 1, 1, 1, tzinfo=LATER)],
     [datetime.datetime(1970, 1, 2), datetime.datetime(1970, 1, 1)]),
    (pa.date32(), ["1970-01-03", datetime.date(1970, 1, 2), 4, None],
     [datetime.date(1970, 1, 3), datetime.date(1970, 1, 2), datetime.date(1970, 1, 5), None]),
    (pa.null(), [None, NAN], [None, None]),
    (pa.list_(pa.int64()), [[1, "2", None], [], None, (3,), np.array([4, 5]), NAN], [[1, 2, None], [], [], [3], [4, 5], []]),
    (pa.list_(pa.string()), [["a", None], ["b"]], [["a", None], ["b"]]),
    (pa.dictionary(pa.int32(), pa.string()), ["a", None], ["a", None]),
    # NumPy arrays
    (pa.int16(), np.array([1, -2], np.int64), [1, -2]),
    (pa.int16(), np.array([1.0, NAN]), [1, None]),
    (pa.int64(), np.array([2.0**53 - 1, 1 - 2.0**53]), [2**53 - 1, 1 - 2**53]),
    (pa.int64(), np.array([NAN, NAN]), [None, None]),
    (pa.int64(), np.array([], np.float64), []),
    (pa.int64(), np.array(["7", None], object), [7, None]),
    (pa.float64(), np.array([1, 2], np.uint8), [1.0, 2.0]),
    (pa.bool_(), np.array([True, False]), [True, False]),
    (pa.string(), np.array(["a", "é"]), ["a", "é"]),
    (pa.timestamp("ms"), np.array(["1970-01-02", "NaT"], "M8[D]"), [datetime.datetime(1970, 1, 2), None]),
    (pa.list_(pa.float64()), np.array([[1.0, 2.0], [3.0, NAN]]), [[1.0, 2.0], [3.0, None]]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "given", "expected"), ACCEPTED, ids=[f"{at}-{case[0]}" for at, case in enumerate(ACCEPTED)]
)
def test_accepted_values(kind: pa.DataType, given: Any, expected: list[Any]) -> None:
    read, raw = (
        reader("x", kind)(given),
        from_arrow(pa.array(expected, pa.string() if pa.types.is_dictionary(kind) else kind)),
    )
    assert read.data.dtype == raw.data.dtype
    mine, theirs = (
        [str(one) if isinstance(one, str) else one for one in values.data.tolist()] for values in (read, raw)
    )
    assert repr(mine) == repr(theirs)
    for mine, theirs in ((read.nulls, raw.nulls), (read.offsets, raw.offsets)):
        assert (mine is None) == (theirs is None)
        assert mine is None or mine.tolist() == theirs.tolist()


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (pa.int64(), ["", " 7", "7.0", "007", 7.0, None, NAN], [None, 7, 7, 7, 7, None, None]),
        (pa.string(), ["", "007", 7.0, 7, None], [None, "007", "7", "7", None]),
    ],
)
def test_ids_are_read_in_all_spellings(kind: pa.DataType, given: Any, expected: list[Any]) -> None:
    read = reader("x", kind, is_id=True)
    assert to_arrow(read(given), kind).to_pylist() == expected
    for wrong in (4.5, 2.0**53, True, ["a"], json.loads('"\\ud800"')):
        with pytest.raises(DataError, match=r"^row 2, column x: "):
            read([None, wrong])


REFUSED: list[tuple[pa.DataType, Any]] = [
    (pa.int32(), 4.5), (pa.int32(), "4.5"), (pa.int32(), ""), (pa.int32(), "x"), (pa.int32(), 2**31), (pa.int32(), "99999999999"),
    (pa.int32(), float("inf")), (pa.int32(), [1]), (pa.int32(), {}), (pa.uint8(), -1), (pa.int8(), 1e300),
    (pa.float64(), "one"),
        (pa.float64(), True), (pa.int32(), True), (pa.int32(), False),
        (pa.float64(), [1.0]), (pa.float64(), 10**400), (pa.bool_(), 2), (pa.bool_(), "maybe"),
    (pa.string(), 4.5), (pa.string(), True), (pa.string(), ["a"]), (pa.string(), json.loads('"\\ud800"')),
    (pa.binary(), 1), (pa.timestamp("us"), "yesterday"), (pa.timestamp("us"), "1/2/2020"), (pa.timestamp("us"), 1.5),
    (pa.timestamp("us"), float("inf")), (pa.timestamp("us"), 2**63), (pa.timestamp("us"), True), (pa.date32(), "x"), (pa.null(), 1),
    (pa.int64(), 2.0**53), (pa.int64(), -(2.0**53)), (pa.uint64(), 2.0**63), (pa.list_(pa.int64()), [1, 2.0**53]),
    (pa.list_(pa.int64()), 5), (pa.list_(pa.int64()), "12"), (pa.list_(pa.int64()), [1, "x"]), (pa.list_(pa.int64()), [[1]]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value"), REFUSED, ids=[f"{at}-{case[0]}" for at, case in enumerate(REFUSED)])
def test_refused_values_are_named_with_row_and_column(kind: pa.DataType, value: Any) -> None:
    shown = value[-1] if isinstance(value, list) and pa.types.is_list(kind) else value
    with pytest.raises(
        DataError, match=rf"^row 2, column price: {re.escape(repr(shown)[:90])}.* is no {re.escape(str(kind))}: "
    ):
        reader("price", kind)([None, value])


@pytest.mark.parametrize(
    ("kind", "values", "row"),
    [
        (pa.int8(), np.array([1, 300]), 2),
        (pa.int64(), np.array([1.0, NAN, 2.5]), 3),
        (pa.int64(), np.array([1.0, np.inf]), 2),
        (pa.int64(), np.array([-np.inf]), 1),
        (pa.uint8(), np.array([-1]), 1),
        (pa.int64(), np.array([2**63], np.uint64), 1),
        (pa.int64(), np.array([2.0**63]), 1),
        (pa.int64(), np.array([2.0**53 - 1, NAN, 2.0**53]), 3),
    ],
)
def test_arrays_are_as_strict(kind: pa.DataType, values: Any, row: int) -> None:
    with pytest.raises(DataError, match=rf"^row {row}, column n: "):
        reader("n", kind)(values)


@pytest.mark.parametrize("values", ["abc", b"abc", 5, None, {"a": 1}])
@pytest.mark.parametrize("kind", [pa.string(), pa.list_(pa.string())])
def test_a_column_is_a_list_of_values(values: Any, kind: pa.DataType) -> None:
    with pytest.raises(DataError, match=r"column x: .* is no column of values"):
        reader("x", kind)(values)


def test_a_long_value_is_cut_in_the_error() -> None:
    with pytest.raises(DataError) as error:
        reader("x", pa.int64())(["y" * 10_000])
    assert len(error.value.message) < 250
