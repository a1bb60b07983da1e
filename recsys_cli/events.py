"""What library code says while it works. It never prints: it emits these, and the command line draws them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Unit = Literal["rows", "bytes", "steps", "users", "trials", "runs", "parts"]


@dataclass(frozen=True)
class Message:
    """A sentence for the user.

    Attributes:
        text: The sentence.
        level: `warning` for what they should act on.
        facts: What it says as plain values, for a caller that reckons with them.
    """

    text: str
    level: Literal["info", "warning"] = "info"
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Progress:
    """How far one task is. Tasks are named by what is being done; the same name moves the same bar.

    Attributes:
        task: Name of the task, such as "download ml-25m.zip".
        done: Units done so far (absolute, not an increment).
        total: Units in all, or None where it is not known. `done == total` ends the bar.
        unit: What is counted.
        fields: Short values to show beside the bar, such as the loss.
        left: Seconds that the rest will take, where who works knows better than the pace so far tells.
    """

    task: str
    done: int
    total: int | None
    unit: Unit = "rows"
    fields: Mapping[str, str] = field(default_factory=dict)
    left: float | None = None


Event = Message | Progress
Emit = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Drop the event: the default where nobody watches."""
