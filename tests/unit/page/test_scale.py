"""Ticks are at round values within the axis, for all kinds and limits."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_cli.page.scale import Axis, is_date, moment


def texts(axis: Axis, *values: float, about: int = 5) -> list[str]:
    return [text for _, text in axis.over(values).ticks(about)]


def seconds(*date: int) -> float:
    return datetime(*date, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("linear", (0, 1), ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        ("linear", (0, 25_000_000), ["0", "5M", "10M", "15M", "20M", "25M"]),
        ("linear", (3, 3), ["2.6", "2.8", "3", "3.2", "3.4"]),
        ("share", (0, 0.5), ["0 %", "10 %", "20 %", "30 %", "40 %", "50 %"]),
        ("log", (1, 20_000), ["1", "10", "100", "1k", "10k"]),
        ("log", (4, 60), ["5", "10", "20", "50"]),
        ("log", (7, 7), ["5", "10"]),
        ("time", (seconds(1996, 3, 1), seconds(2018, 9, 1)), ["2000", "2005", "2010", "2015"]),
        ("time", (seconds(2020, 11, 20), seconds(2021, 4, 2)), ["2020-12", "2021-01", "2021-02", "2021-03", "2021-04"]),
        ("time", (seconds(2020, 2, 28), seconds(2020, 3, 3)), ["02-28", "02-29", "03-01", "03-02", "03-03"]),
        ("time", (seconds(2020, 1, 1, 23), seconds(2020, 1, 2, 1)), ["23:00", "23:30", "00:00", "00:30", "01:00"]),
    ],
)
def test_ticks_are_round(kind: str, values: tuple[float, float], expected: list[str]) -> None:
    found = texts(Axis("", kind=kind), *values)  # type: ignore[arg-type]
    assert found[: len(expected)] == expected


@pytest.mark.parametrize("kind", ["linear", "share", "log", "time"])
@given(values=st.lists(st.floats(1e-3, 2e9), min_size=1, max_size=4))
@settings(derandomize=True, max_examples=100)
def test_values_and_ticks_are_within_the_axis(kind: str, values: list[float]) -> None:
    scale = Axis("", kind=kind).over(values)  # type: ignore[arg-type]
    ticks = [value for value, _ in scale.ticks(5)]
    assert all(0 <= scale(value) <= 1 for value in values)
    assert ticks == sorted(ticks)
    assert len(ticks) <= 70
    assert sorted(map(scale, values)) == [scale(value) for value in sorted(values)]


def test_logarithmic_axis_ignores_values_without_logarithm() -> None:
    scale = Axis("", kind="log").over([0, 10, 1000])
    assert (scale.low, scale.high) == (10, 1000)
    assert scale(0) == 0


def test_only_plausible_times_are_dates() -> None:
    assert moment(789652009) == "1995-01-09 11:46:49"
    assert moment(12_345) == "12,345"
    assert moment(1_574_327_703_000) == "1,574,327,703,000"
    assert is_date(789652009, 1574327703)
    assert not is_date(0, 1574327703)
