"""Figures of pages and their scales."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_cli.page import Axis, IntervalBar, LineSeries, chart, intervals
from recsys_cli.page.charts import is_date, moment

X, Y = Axis("x", low=0, high=10), Axis("y", low=0, high=1)


def svg(drawn: str) -> ElementTree.Element:
    return ElementTree.fromstring(drawn[drawn.index("<svg") :])


def test_line_goes_through_its_points() -> None:
    drawn = svg(chart("A", [LineSeries((0, 5, 10), (0, 1, 0.5))], x=X, y=Y))
    points = [tuple(map(float, point.split(","))) for point in drawn.find("polyline").get("points").split()]  # type: ignore[union-attr]
    (left, ground), (middle, top), (right, half) = points
    assert middle == pytest.approx((left + right) / 2, abs=0.1)
    assert half == pytest.approx((ground + top) / 2, abs=0.1)
    assert left < right
    assert top < ground


def test_single_point_is_marked() -> None:
    drawn = svg(chart("A", [LineSeries((5,), (0.5,), name="one")], x=Axis("x"), y=Axis("y")))
    assert len(drawn.findall("circle")) == 1


def test_intervals_have_the_line_at_zero() -> None:
    marks = [IntervalBar("a", 1.0, 0.5, 1.5), IntervalBar("b", -0.5, -1.0, 0.0, color=2)]
    drawn = svg(intervals("A", marks, x=Axis("x"), names={1: "one"}))
    dots = [float(dot.get("cx", "")) for dot in drawn.findall("circle")]
    lines = {line.get("class"): float(line.get("x2", "")) for line in drawn.findall("line")}
    assert lines["whisker s2"] == lines["axis"]
    assert dots[0] - lines["axis"] == pytest.approx(2 * (lines["axis"] - dots[1]), abs=0.2)


def test_no_values_no_figure() -> None:
    assert chart("A", [LineSeries((), ())], x=X, y=Y) == ""
    assert intervals("A", [], x=X) == ""


def test_legend_has_names_and_colors() -> None:
    drawn = chart(
        "A", [LineSeries((), (), name="none"), LineSeries((1,), (1,), name="a"), LineSeries((1, 2), (1, 1))], x=X, y=Y
    )
    assert re.findall(r'<span class="(\w+)">(\w+)</span>', drawn) == [("s2", "a")]


def test_text_is_escaped_everywhere_and_colors_are_those_of_the_page() -> None:
    bad = "</svg><script>"
    drawn = chart(bad, [LineSeries((1,), (1,), name=bad)], x=Axis(bad), y=Axis(bad))
    drawn += intervals(bad, [IntervalBar(bad, 1.0, 0.0, 2.0)], x=Axis(bad))
    assert "<script>" not in drawn
    assert "&lt;script&gt;" in drawn
    assert not re.search(r"#[0-9a-fA-F]{3}|rgb|fill=|stroke=", drawn)


def test_scatter_over_categories() -> None:
    axis = Axis("x", kind="names", names=("[64]", "[128]", "[256]"))
    drawn = svg(chart("A", [LineSeries((0, 2), (0.1, 0.9), joined=False, color=3)], x=axis, y=Y))
    assert drawn.find("polyline") is None
    dots = drawn.findall("circle")
    assert {dot.get("class") for dot in dots} == {"dot s3"}
    assert [dot.find("title").text for dot in dots] == ["[64], 0.1", "[256], 0.9"]  # type: ignore[union-attr]
    labels = {text.text: float(text.get("x", "")) for text in drawn.findall("text")}
    assert [float(dot.get("cx", "")) for dot in dots] == [labels["[64]"], labels["[256]"]]
    assert labels["[128]"] == pytest.approx((labels["[64]"] + labels["[256]"]) / 2, abs=0.1)


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
        (
            "time",
            (seconds(2020, 11, 20), seconds(2021, 4, 2)),
            ["2020-12-04", "2021-01-03", "2021-02-02", "2021-03-04"],
        ),
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
