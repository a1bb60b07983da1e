"""Calls of a limited time in a process of its own: what they answer, and what is left of those that go on too long."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from recsys_cli.errors import DataError, TrainingError
from recsys_cli.events import Emit, Event, Message
from recsys_cli.stages.timed import Clock, Timed


@pytest.fixture
def timed():
    events: list[Event] = []
    made = Timed(grace=20, memory=None, emit=events.append)  # of a busy machine
    yield made, events
    made.close()


def add(one: int, other: int, *, emit: Emit) -> int:
    emit(Message(f"{one} and {other}"))
    return one + other


def refuse(text: str, *, emit: Emit) -> None:
    raise DataError(text, hint="another file")


def wait(path: Path, *, emit: Emit) -> str:
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        path.write_text("saved")
        raise
    return "late"


def last_step(*, emit: Emit) -> str:
    """As a training that comes to its end while it is interrupted."""
    with suppress(KeyboardInterrupt):
        time.sleep(60)
    return "done"


def talk(*, emit: Emit) -> str:
    for step in range(6_000):
        emit(Message(str(step)))
        time.sleep(0.01)
    return "late"


def stubborn(path: Path, *, emit: Emit) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    path.write_text(str(os.getpid()))
    time.sleep(60)


def die(*, emit: Emit) -> None:
    os._exit(9)


def allocate(number: int, *, emit: Emit) -> int:
    return len(bytearray(number))


def number(*, emit: Emit) -> int:
    return os.getpid()


def test_a_call_answers_with_its_events_in_one_process(timed):
    own, events = timed
    assert own.call(add, 2, 3) == 5
    assert [event.text for event in events] == ["2 and 3"]
    assert own.call(number) == own.call(number) != os.getpid()


def test_errors_come_as_they_are_and_the_process_goes_on(timed):
    own, _ = timed
    first = own.call(number)
    with pytest.raises(DataError, match="no table") as caught:
        own.call(refuse, "no table")
    assert caught.value.hint == "another file"
    assert own.call(number) == first


def test_a_call_over_its_time_is_interrupted_and_may_save(timed, tmp_path):
    own, _ = timed
    first = own.call(number)
    assert own.call(wait, tmp_path / "saved", seconds=2) is None
    assert (tmp_path / "saved").read_text() == "saved"
    assert own.call(number) != first  # imports of the interrupted one may be partial


def test_a_call_with_events_ends_at_one_and_its_process_goes_on(timed):
    own, events = timed
    first = own.call(number)
    assert own.call(talk, seconds=2) is None
    assert 5 < len(events) < 1_000
    assert own.call(number) == first


def test_a_call_that_ends_when_interrupted_has_its_result(timed):
    own, _ = timed
    own.call(number)  # started
    assert own.call(last_step, seconds=2) == "done"


def test_a_call_that_ignores_the_interrupt_is_killed(tmp_path):
    own = Timed(grace=0.5, memory=None, emit=lambda _: None)
    own.call(add, 1, 1)
    assert own.call(stubborn, tmp_path / "pid", seconds=3) is None
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert own.call(add, 1, 1) == 2
    own.close()


def test_a_call_interrupted_at_the_start_of_the_process_is_over(timed, capfd):
    assert timed[0].call(add, 1, 1, seconds=0.01) in {None, 2}
    assert timed[0].call(add, 1, 1) == 2
    assert not capfd.readouterr().err


def test_without_time_nothing_starts(timed):
    assert timed[0].call(die, seconds=0) is None


def test_a_dead_process_is_an_error_and_another_follows(timed):
    own, _ = timed
    with pytest.raises(TrainingError, match="code 9"):
        own.call(die)
    assert own.call(add, 1, 1) == 2


def test_memory_has_a_limit_in_the_process_alone():
    own = Timed(grace=0.5, memory=400 << 20, emit=lambda _: None)
    with pytest.raises(MemoryError):
        own.call(allocate, 1 << 30)
    assert own.call(allocate, 1 << 20) == 1 << 20
    own.close()
    assert allocate(1 << 30, emit=lambda _: None) == 1 << 30


def test_the_clock_counts_earlier_calls():
    clock = Clock(60, start=time.monotonic() - 5)
    assert 5 <= clock.spent < 10
    clock.before = 50
    assert 0 < clock.left <= 5
