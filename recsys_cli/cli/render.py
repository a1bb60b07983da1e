"""Progress display: bars on a terminal, occasional lines in a log, nothing with --quiet."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from recsys_cli.cli.quantities import count, duration, rate, share
from recsys_cli.cli.tables import escaped
from recsys_cli.events import Emit, Event, Message, Progress, ignore

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import Task, TaskID

EVERY = 10.0
"""Seconds between two log lines of a task."""
_STARTING = ""
WORTH_A_LINE = 5.0
"""Minimum duration in seconds of a task with a final line."""


@contextmanager
def renderer(stage: str, *, quiet: bool) -> Iterator[Emit]:
    """Select the renderer of a stage's events, by --quiet and the kind of stderr."""
    if quiet:
        yield ignore
        return
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    if console.is_terminal and not console.is_dumb_terminal:
        with _bars(console, stage) as draw:
            yield _ignore_closed(draw)
    else:
        write = partial(print, file=sys.stderr, flush=True)
        yield _ignore_closed(LogRenderer(lambda text: write(escaped(text))))


def _ignore_closed(emit: Emit) -> Emit:
    """Ignore write errors of a closed terminal."""

    def safely(event: Event) -> None:
        with suppress(OSError):
            emit(event)

    return safely


class LogRenderer:
    """Renderer for logs and pipes: a line per task every `EVERY` seconds, and one at the end of a long task."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock
        self._paces: dict[str, Pace] = {}
        self._written: dict[str, float] = {}

    def __call__(self, event: Event) -> None:
        """Render one event."""
        if isinstance(event, Message):
            self._write(f"warning: {event.text}" if event.level == "warning" else event.text)
            return
        now = self._clock()
        pace = self._paces.setdefault(event.task, Pace(now, event.done))
        since = self._written.setdefault(event.task, now)
        if _ends(event):
            if now - pace.start >= WORTH_A_LINE:
                self._write(pace.summary(event, now))
            del self._paces[event.task], self._written[event.task]
        elif now - since >= EVERY:
            self._write(pace.line(event, now))
            self._written[event.task] = now


class Pace:
    """Speed of a task since its first event; a resumed download does not start at 0."""

    def __init__(self, start: float, first: int) -> None:
        self.start = start
        self.first = first

    def line(self, event: Progress, now: float) -> str:
        """Return amount, speed and remaining time."""
        speed = (event.done - self.first) / max(now - self.start, 1e-9)
        left = (event.total - event.done) / speed if speed and event.total is not None else None
        return f"{event.task}: {_facts(event, _amount(event), speed, left)}"

    def summary(self, event: Progress, now: float) -> str:
        """Return amount, duration and mean speed."""
        seconds = max(now - self.start, 1e-9)
        amount = f"{count(event.done, event.unit)} in {duration(seconds)}"
        return f"{event.task}: {_facts(event, amount, (event.done - self.first) / seconds, None)}"


@contextmanager
def _bars(console: Console, stage: str) -> Iterator[Emit]:
    from rich.text import Text

    bars = _columns(console)
    # Importing torch takes seconds; show a bar meanwhile.
    tasks: dict[str, TaskID] = {_STARTING: bars.add_task(f"{stage}: starting", total=None, unit="", fields={})}
    paces: dict[str, Pace] = {}

    def emit(event: Event) -> None:
        if isinstance(event, Message):
            warning = event.level == "warning"
            console.print(
                Text(escaped(f"warning: {event.text}" if warning else event.text), style="yellow" if warning else "")
            )
            return
        if _STARTING in tasks:
            bars.remove_task(tasks.pop(_STARTING))
        paces.setdefault(event.task, Pace(time.monotonic(), event.done))
        if event.task not in tasks:
            tasks[event.task] = bars.add_task(
                event.task, total=event.total, unit=event.unit, fields={}, steady=event.steady
            )
        bars.update(tasks[event.task], total=event.total, completed=event.done, fields=event.fields)
        if _ends(event):
            bars.remove_task(tasks.pop(event.task))
            pace, now = paces.pop(event.task), time.monotonic()
            if now - pace.start >= WORTH_A_LINE:
                console.print(Text(pace.summary(event, now), style="dim"))

    bars.start()
    try:
        yield emit
    finally:
        with suppress(OSError):
            bars.stop()


def _columns(console: Console) -> Bars:
    """Build the columns of the progress bar; fewer on a narrow terminal."""
    from rich.progress import BarColumn, ProgressColumn, TextColumn
    from rich.progress import Progress as Bars
    from rich.table import Column
    from rich.text import Text

    wide, roomy = console.width >= 80, console.width >= 100

    class Facts(ProgressColumn):
        def render(self, task: Task) -> Text:
            unit = task.fields["unit"]
            if not unit:
                return Text("")
            total = None if task.total is None else int(task.total)
            shown = task.fields["fields"] if roomy else {}
            event = Progress(task.description, int(task.completed), total, unit, shown, task.fields["steady"])
            amount = _amount(event) if wide or total is None else share(event.done / max(event.total or 1, 1))
            facts = _facts(event, amount, task.speed or 0.0, None if task.finished else task.time_remaining)
            return Text(facts, no_wrap=True, overflow="ellipsis")

    name = TextColumn(
        "{task.description}",
        markup=False,
        table_column=Column(no_wrap=True, overflow="ellipsis", max_width=max(14, console.width // 3)),
    )
    bar = [BarColumn(bar_width=20 if console.width < 120 else 30)] if wide else []
    return Bars(
        name, *bar, Facts(table_column=Column(no_wrap=True, overflow="ellipsis")), console=console, transient=True
    )


def _ends(event: Progress) -> bool:
    return event.total is not None and event.done >= event.total


def _amount(event: Progress) -> str:
    if event.total is None:
        return count(event.done, event.unit)
    return f"{share(event.done / event.total if event.total else 1.0)} of {count(event.total, event.unit)}"


def _facts(event: Progress, amount: str, speed: float, left: float | None) -> str:
    parts = [amount]
    if speed and event.steady and f"{event.unit}/s" not in event.fields:  # the stage reports its own speed
        parts.append(rate(speed, event.unit))
    if left is not None and event.steady:
        parts.append(f"{duration(left)} left")
    return " · ".join([*parts, *(f"{name} {value}" for name, value in event.fields.items())])
