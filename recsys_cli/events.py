"""Events of library code: messages and progress. The library never prints; the command line renders the events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Unit = Literal["rows", "bytes", "steps", "users", "trials", "runs", "models", "parts"]


@dataclass(frozen=True)
class Message:
    """A message for the user; `warning` if the user should act, `facts` for callers of the library."""

    text: str
    level: Literal["info", "warning"] = "info"
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Progress:
    """Progress of a task; events with the same task update the same bar.

    Attributes:
        done: Units done so far (absolute, not an increment).
        total: Total number of units; None if unknown. `done == total` ends the bar.
        fields: Short values next to the bar, such as the loss.
        steady: Whether the speed so far tells the remaining time.
    """

    task: str
    done: int
    total: int | None
    unit: Unit = "rows"
    fields: Mapping[str, str] = field(default_factory=dict)
    steady: bool = True


Event = Message | Progress
Emit = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Ignore the event."""


def divert_messages(emit: Emit, receive: Callable[[Message], None]) -> Emit:
    """Forward progress only; messages go to another function."""
    return lambda event: emit(event) if isinstance(event, Progress) else receive(event)
