"""Progress of a stage: a bar, a function of events, or an iterator of events."""

from __future__ import annotations

import html
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from recsys_cli.api.boundary import public
from recsys_cli.events import Emit, Event, Message, ignore

Result = TypeVar("Result")
Report = bool | Emit
_SECONDS = 0.2
"""Minimum seconds between two updates of a notebook's bar."""


@contextmanager
def reporting(stage: str, progress: Report) -> Iterator[Emit]:
    """Return the receiver of a stage's events: the given function, a bar in a notebook or on a terminal, or nothing."""
    if callable(progress):
        yield progress
    elif not progress:
        yield ignore
    elif "ipykernel" in sys.modules:
        yield NotebookBars()
    else:
        from recsys_cli.cli.render import renderer

        with renderer(stage, quiet=False) as emit:
            yield emit


class NotebookBars:
    """Draws a progress bar per task in the output of a notebook cell; finished bars disappear."""

    def __init__(self) -> None:
        self._shown: dict[str, tuple[Any, Any, float]] = {}

    def __call__(self, event: Event) -> None:
        """Draw one event."""
        from IPython.display import HTML, display

        from recsys_cli.cli.render import Pace

        if isinstance(event, Message):
            print(f"warning: {event.text}" if event.level == "warning" else event.text)  # noqa: T201 - a cell's output
            return
        now = time.monotonic()
        if event.task not in self._shown:
            self._shown[event.task] = display(HTML(""), display_id=True), Pace(now, event.done), 0.0
        handle, pace, drawn = self._shown[event.task]
        if event.total is not None and event.done >= event.total:
            handle.update(HTML(""))
            del self._shown[event.task]
        elif now - drawn >= _SECONDS:
            share = "" if event.total is None else f' value="{event.done}" max="{event.total}"'
            handle.update(HTML(f"<progress{share}></progress> {html.escape(pace.line(event, now))}"))
            self._shown[event.task] = handle, pace, now


class Events(Generic[Result]):
    """Iterator over the events of a stage in a background thread. Leaving the loop early interrupts the stage.

    Args:
        stage: `download`, `etl`, `train` or `evaluate`.
        args: Its arguments.
        options: Its options, without `progress`.

    Attributes:
        result: Return value of the stage, set at the end of the iteration.

    Example:
        >>> training = recsys.Events(recsys.train, config, workspace)
        >>> for event in training:
        ...     print(event)
        >>> run = training.result
    """

    result: Result

    @public
    def __init__(self, stage: Callable[..., Result], *args: Any, **options: Any) -> None:
        self._work = partial(stage, *args, **options)

    def __iter__(self) -> Iterator[Event]:
        queue: SimpleQueue[Event | None] = SimpleQueue()
        left = threading.Event()
        failed: list[BaseException] = []

        def emit(event: Event) -> None:
            if left.is_set():
                raise KeyboardInterrupt
            queue.put(event)

        def run() -> None:
            try:
                self.result = self._work(progress=emit)
            except BaseException as error:  # raised again in the iterating thread
                failed.append(error)
            finally:
                queue.put(None)

        thread = threading.Thread(target=run, name="recsys-events")
        thread.start()
        try:
            while (event := queue.get()) is not None:
                yield event
            if failed:
                raise failed[0]
        finally:
            left.set()
            thread.join()
