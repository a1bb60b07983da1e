"""Time columns: formats, units, and independence of chunks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsys_cli.etl.reading.times import NotATimeError, is_time, to_times, unit_of

FORMATS = {
    "iso": ["%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S.%fZ", "%Y-%m-%d %H:%M:%S UTC", "%Y-%m-%d %H:%M:%S+0000", "%Y-%m-%d"],
    "iso ns": ["%Y-%m-%d %H:%M:%S.%f000", "%Y-%m-%dT%H:%M:%S+00:00"],
    "%d.%m.%Y %H:%M:%S": ["%-d.%-m.%Y %-H:%M:%S", "%d.%m.%Y %H:%M:%S"],
    "%m/%d/%Y %I:%M:%S %p": ["%-m/%-d/%Y %-I:%M:%S %p"],
    "int64 ms": ["ms"],
}  # fmt: skip
MOMENTS = st.integers(0, 4 * 10**9).map(lambda seconds: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds))


def _written(moment: datetime, form: str) -> str:
    return f"{moment.timestamp():.0f}250" if form == "ms" else moment.strftime(form)


@given(draw=st.data())
def test_a_slice_has_the_times_of_the_whole(draw: st.DataObject) -> None:
    how = draw.draw(st.sampled_from(list(FORMATS)))
    moments = draw.draw(st.lists(MOMENTS | st.none(), min_size=1, max_size=8))
    written = [draw.draw(st.sampled_from(FORMATS[how])) for _ in moments]
    texts = [
        draw.draw(st.sampled_from([None, ""])) if one is None else _written(one, form)
        for one, form in zip(moments, written, strict=True)
    ]
    column = pa.chunked_array([pa.array(texts, pa.string())])
    whole = to_times(column, how).to_pylist()
    for one, form, found in zip(moments, written, whole, strict=True):
        if one is None:
            assert found is None
        else:
            exact = one.replace(hour=0, minute=0, second=0) if form == "%Y-%m-%d" else one
            assert found.replace(tzinfo=UTC) == exact + timedelta(milliseconds=250) * (form == "ms")
    start = draw.draw(st.integers(0, len(texts) - 1))
    stop = draw.draw(st.integers(start, len(texts)))
    sliced = pa.chunked_array([pa.array(texts, pa.string())[start:stop]], pa.string())
    assert to_times(sliced, how).to_pylist() == whole[start:stop]


@pytest.mark.parametrize("how", [*FORMATS, "%Y"])
def test_strings_in_another_format_are_no_times(how: str) -> None:
    for text in ("soon", "14/14/2019", "2019-13-01", "nan"):
        assert not is_time(text, how)
    with pytest.raises(NotATimeError):
        to_times(pa.chunked_array([["soon"]]), how)


@pytest.mark.parametrize(
    ("number", "unit"),
    [
        (1.57e9, None),
        (1.57e12, "ms"),
        (1.57e15, "us"),
        (1.57e18, "ns"),
        (20191001023316, None),
        (201910010233, None),
        (17, None),
    ],
)
def test_the_magnitude_of_numbers_determines_their_unit(number: float, unit: str | None) -> None:
    assert unit_of(pa.array([number, 0.0, number + 1, float("nan")]).to_numpy()) == unit
    assert unit_of(pa.array([], pa.float64()).to_numpy()) is None
