"""Launch and end of workers, with scripted workers that load no torch."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from recsys_cli.errors import DataError, TrainingError
from recsys_cli.events import Event, Message, Progress
from recsys_cli.training import launch

PUPPET = """
import json, os, sys, time

kind, job = json.loads(sys.stdin.readline())
for what, *values in job["each"][int(os.environ["RANK"])]:
    if what == "say":
        print(values[0], flush=True)
    elif what == "write":
        print(values[0], file=sys.stderr, flush=True)
    elif what == "wait":
        time.sleep(values[0])
    elif what == "until":
        assert sys.stdin.read() == ""
    elif what == "kill":
        os.kill(os.getpid(), values[0])
    elif what == "end":
        sys.exit(values[0])
"""
LOST = '["error", {"type": "LostRankError", "message": "another rank is gone", "hint": null, "traceback": "..."}]'


@pytest.fixture(autouse=True)
def puppet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module `puppet` on the path of this process."""
    (tmp_path / "puppet.py").write_text(PUPPET)
    monkeypatch.syspath_prepend(tmp_path)


def play(*each: list[Any], emit: Any = lambda event: None) -> None:
    launch.launch("puppet", {"each": each}, devices=len(each), emit=emit)


def test_events_come_through_and_noise_does_not() -> None:
    events: list[Event] = []
    sent = [Message("hello", "warning", {"auc": 0.5}), Progress("train", 3, 10, fields={"loss": "0.1"}), Message("bye")]
    said = [["say", launch.event_line(event)] for event in sent]
    play([*said[:2], ["say", "some library says hi"], said[2]], [["write", "a warning"]], emit=events.append)
    assert events == sent


def test_the_cause_is_told_and_not_its_consequence() -> None:
    error = launch.error_line(DataError("part 7 is broken", hint="mend it"))
    with pytest.raises(DataError, match=r"^part 7 is broken\n") as caught:
        play([["say", LOST], ["end", 1]], [["wait", 0.3], ["say", error], ["end", 1]])
    assert caught.value.hint == "mend it"
    assert caught.value.__notes__[0].startswith("in rank 1:\n")


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (["kill", int(signal.SIGKILL)], r"^rank 1 was killed by SIGKILL$"),
        (["end", 3], r"^rank 1 ended with code 3; it wrote:\nout of luck$"),
    ],
)
def test_a_process_that_ends_without_a_word_is_told_of(end: list[Any], message: str) -> None:
    first = [["write", "out of luck"]] if end[0] == "end" else []
    with pytest.raises(TrainingError, match=message):
        play([["wait", 0.3], ["say", LOST], ["end", 1]], [*first, end])


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (OSError(28, "No space left on device", "/there"), OSError, "No space left on device: '/there'"),
        (ValueError("odd"), RuntimeError, r"^rank 0: ValueError: odd\n"),
    ],
)
def test_an_error_of_the_system_stays_one_and_others_say_where_they_came_from(
    error: Exception, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        play([["say", launch.error_line(error)], ["end", 1]], [])


def test_ctrl_c_asks_all_to_stop() -> None:
    def emit(event: Event) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    said = launch.event_line(Message("at work"))
    for end in (["end", launch.INTERRUPTED], ["kill", int(signal.SIGINT)]):  # the signal came at the end of the worker
        with pytest.raises(KeyboardInterrupt):
            play([["say", said], ["until"], ["end", launch.INTERRUPTED]], [["until"], end], emit=emit)
    play([["say", said], ["until"]], [["until"]], emit=emit)  # all were done at that moment


def test_who_does_not_end_after_another_failed_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_GRACE", 0.1)
    with pytest.raises(TrainingError, match="rank 1 ended with code 3"):
        play([["wait", 600]], [["end", 3]])


def test_an_error_of_who_listens_ends_the_processes() -> None:
    def emit(event: Event) -> None:
        raise ValueError("heard enough")

    with pytest.raises(ValueError, match="heard enough"):
        play([["say", launch.event_line(Message("at work"))], ["wait", 600]], [["wait", 600]], emit=emit)
