"""Work of a limited time, in a process of its own: interrupted as by Ctrl-C at its end, and killed if that is not enough."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import Any, TypeVar

from recsys_cli.errors import TrainingError
from recsys_cli.events import Emit, Event

T = TypeVar("T")
_SAVING, _ENDING, _LOOK, _POLL = 30.0, 0.5, 0.5, 3_600.0
"""Seconds to save a training when the command ends, for an idle process to end, between looks at the parent, and of a wait."""
_INTERRUPT = {signal.SIGINT}


class Clock:
    """The time of a command, since `start` on the monotonic clock; seconds spent in earlier calls, `before`, count."""

    def __init__(self, seconds: float, *, start: float) -> None:
        self.seconds, self.before, self._start = seconds, 0.0, start

    @property
    def spent(self) -> float:
        """Seconds so far."""
        return self.before + time.monotonic() - self._start

    @property
    def left(self) -> float:
        """Seconds until the end."""
        return self.seconds - self.spent


class Timed:
    """Calls in a process of its own, one at a time; it is killed `grace` seconds after the end of its time.

    The time of a call is over at an event of it: training in steps then saves the last one. Without events it is interrupted, and
    another process follows, as imports may be partial.
    """

    def __init__(self, *, grace: float, memory: int | None, emit: Emit) -> None:
        self._grace, self._memory, self._emit = grace, memory, emit
        self._process: Any = None
        self._pipe: Connection

    def call(self, task: Callable[..., T], *arguments: Any, seconds: float = math.inf) -> T | None:
        """Return the result of `task(*arguments, emit=…)`; None if the time is over.

        Raises:
            Exception: That of the task.
            TrainingError: The process died, as for lack of memory.
        """
        if seconds <= 0:
            return None
        try:
            self._send((task, arguments, seconds))
            kind, value = self._answer(seconds)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise self._death() from None
        except BaseException:
            self.close()
            raise
        if kind == "error":
            raise value
        return value

    def _answer(self, seconds: float) -> tuple[str, Any]:
        """Return the answer to a call: its kind, `result` or `error`, and its value."""
        answer = self._wait(seconds + self._grace / 2)
        if answer is None:
            self._process.send_signal(signal.SIGINT)
            with suppress(EOFError):
                answer = self._wait(self._grace / 2)
            self._pipe.close()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_ENDING)
            self._kill()
        if answer is None or isinstance(answer[1], KeyboardInterrupt):
            return "result", None
        return answer

    def _wait(self, seconds: float) -> tuple[str, Any] | None:
        end = time.monotonic() + seconds
        while self._pipe.poll(max(0.0, min(end - time.monotonic(), _POLL))) or time.monotonic() < end:
            if self._pipe.poll():
                kind, value = self._pipe.recv()
                if kind != "event":
                    return kind, value
                self._emit(value)
        return None

    def _death(self) -> TrainingError:
        """Return the error of a dead process."""
        code = self._process.wait()
        self._kill()
        return TrainingError(f"the process ended with code {code}; it may have lacked memory")

    def close(self) -> None:
        """End the process; a training in it saves its last step first."""
        if self._process is None:
            return
        self._pipe.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.send_signal(signal.SIGINT)
            self._process.wait(_SAVING)
        self._kill()

    def _send(self, message: Any) -> None:
        if self._process is None:
            self._pipe, theirs = Pipe()
            command = (
                f"from recsys_cli.stages.timed import serve; serve({theirs.fileno()}, {os.getpid()}, {self._memory})"
            )
            signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPT)  # in the process until it works
            try:
                # Its errors come over the pipe; what libraries print at a kill does not help.
                line, fds = [sys.executable, "-P", "-c", command], [theirs.fileno()]
                self._process = subprocess.Popen(line, pass_fds=fds, stderr=subprocess.DEVNULL)  # noqa: S603
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPT)
                theirs.close()
        self._pipe.send(message)

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def serve(number: int, parent: int, memory: int | None) -> None:
    """Answer calls of the parent process on a file descriptor, until it closes."""
    pipe = Connection(number)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    if memory is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (memory, resource.getrlimit(resource.RLIMIT_DATA)[1]))

    end = math.inf

    def emit(event: Event) -> None:
        nonlocal end
        pipe.send(("event", event))
        if time.monotonic() > end:
            end = math.inf
            signal.raise_signal(signal.SIGINT)

    try:
        while True:
            task, arguments, seconds = pipe.recv()
            end = time.monotonic() + seconds
            try:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPT)
                answer = "result", task(*arguments, emit=emit)
            except (Exception, KeyboardInterrupt) as error:
                travels = type(error).__module__.partition(".")[0] in {"recsys_cli", "builtins"}
                answer = "error", error if travels else RuntimeError(str(error))
            signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPT)
            pipe.send(answer)
    except (EOFError, OSError, KeyboardInterrupt):
        return


def _end_with(parent: int) -> None:
    """Interrupt the work of this process when its parent is gone."""
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(_SAVING)
    os._exit(1)
