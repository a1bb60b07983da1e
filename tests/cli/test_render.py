"""Events as bars and lines."""

import io
import re

import pytest
from rich.console import Console

from recsys_cli.cli import render
from recsys_cli.cli.quantities import amount, duration, share, size
from recsys_cli.cli.render import LogRenderer, renderer
from recsys_cli.events import Message, Progress, ignore


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (0.5, "0.5"),
        (12.3, "12"),
        (9_999, "9999"),
        (12_345, "12.3 k"),
        (25_000_095, "25.0 M"),
        (1e9, "1.00 G"),
    ],
)
def test_amount_is_short(number, text):
    assert amount(number) == text


@pytest.mark.parametrize(
    ("num_bytes", "text"), [(0, "0 B"), (999, "999 B"), (261_978_986, "262 MB"), (3.16e9, "3.16 GB")]
)
def test_size_is_in_powers_of_ten(num_bytes, text):
    assert size(num_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0 s"), (9.96, "10 s"), (61, "61 s"), (150, "2 min"), (3_599, "1 h 00 min"), (4_000, "1 h 07 min")],
)
def test_duration_has_a_suitable_unit(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("part", "text"), [(0, "0.0 %"), (1e-7, "<0.1 %"), (0.1234, "12.3 %"), (0.99999, ">99.9 %"), (1, "100.0 %")]
)
def test_share_does_not_round_to_zero_or_all(part, text):
    assert share(part) == text


class Clock:
    """A clock set by the test."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_lines_come_every_ten_seconds_and_at_the_end():
    written: list[str] = []
    clock = Clock()
    draw = LogRenderer(written.append, clock)
    for second in range(31):
        clock.now = 100.0 + second
        draw(Progress("read", second * 1_000_000, 30_000_000, fields={"loss": "0.5"}))
    assert written == [
        "read: 33.3 % of 30.0 M rows · 1.00 M rows/s · 20 s left · loss 0.5",
        "read: 66.7 % of 30.0 M rows · 1.00 M rows/s · 10 s left · loss 0.5",
        "read: 30.0 M rows in 30 s · 1.00 M rows/s · loss 0.5",
    ]


def test_lines_count_the_pace_of_a_resumed_download_from_where_it_began():
    written: list[str] = []
    clock = Clock()
    draw = LogRenderer(written.append, clock)
    draw(Progress("download", 90_000_000, 100_000_000, "bytes"))
    clock.now += 10
    draw(Progress("download", 95_000_000, 100_000_000, "bytes"))
    assert written == ["download: 95.0 % of 100 MB · 500 kB/s · 10 s left"]


def test_short_tasks_have_no_lines():
    written: list[str] = []
    draw = LogRenderer(written.append, Clock())
    draw(Progress("unpack", 0, 10, "bytes"))
    draw(Progress("unpack", 10, 10, "bytes"))
    assert written == []


def test_repeated_task_restarts_its_lines():
    written: list[str] = []
    clock = Clock()
    draw = LogRenderer(written.append, clock)
    for _ in range(2):
        draw(Progress("read", 0, 10))
        clock.now += 10
        draw(Progress("read", 10, 10))
    assert written == ["read: 10 rows in 10 s · 1 rows/s"] * 2


def test_lines_support_unknown_and_zero_totals():
    written: list[str] = []
    clock = Clock()
    draw = LogRenderer(written.append, clock)
    draw(Progress("read", 0, None))
    draw(Progress("rank", 0, 0, "users"))
    clock.now += 20
    draw(Progress("read", 5_000_000, None))
    assert written == ["read: 5.00 M rows · 250 k rows/s"]


def test_lines_prefer_the_speed_of_the_stage():
    written: list[str] = []
    clock = Clock()
    draw = LogRenderer(written.append, clock)
    draw(Progress("train", 0, 100))
    clock.now += 10
    draw(Progress("train", 50, 100, fields={"rows/s": "7"}))
    assert written == ["train: 50.0 % of 100 rows · 10 s left · rows/s 7"]


def test_messages_are_lines_and_warnings_say_so():
    written: list[str] = []
    draw = LogRenderer(written.append)
    draw(Message("hello [bold]"))
    draw(Message("beware", level="warning"))
    assert written == ["hello [bold]", "warning: beware"]


def test_quiet_draws_nothing():
    with renderer("etl", quiet=True) as emit:
        assert emit is ignore


def test_a_pipe_gets_lines(capsys):
    with renderer("etl", quiet=False) as emit:
        emit(Message("hello"))
    assert capsys.readouterr() == ("", "hello\n")


def test_no_remaining_time_where_the_last_part_is_the_longest():
    written: list[str] = []
    clock = Clock()
    draw = LogRenderer(written.append, clock)
    draw(Progress("candidates", 0, 2, unit="models", steady=False))
    clock.now += 12
    draw(Progress("candidates", 1, 2, unit="models", fields={"now": "sasrec"}, steady=False))
    assert written == ["candidates: 50.0 % of 2 models · now sasrec"]


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_bars_fit_the_terminal(width):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=width, color_system=None, legacy_windows=False)
    with render._bars(console, "train") as emit:
        emit(Message("[not markup]"))
        for done in (0, 10, 60):
            emit(
                Progress(
                    "train epoch 1/20 of a task with a long name", done, 100, fields={"loss": "0.5", "waiting": "1 %"}
                )
            )
        emit(Progress("count", 5, None, "users"))
        emit(Progress("train epoch 1/20 of a task with a long name", 100, 100))
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    assert "[not markup]" in plain
    assert "train epoch" in plain
    assert all(len(line) <= width for part in plain.splitlines() for line in part.split("\r"))
