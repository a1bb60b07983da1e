"""What the processes of one run tell the one that started them: events and errors, each a line of JSON."""

from __future__ import annotations

import json
import traceback
from dataclasses import asdict
from typing import Any

from recsys_cli import errors
from recsys_cli.errors import RecsysError, TrainingError
from recsys_cli.events import Event, Message, Progress

_EVENTS = {"message": Message, "progress": Progress}


def line(kind: str, **values: Any) -> str:
    """Return a line that says something; `parse` takes it apart again."""
    return json.dumps([kind, values], default=str)


def parse(text: str) -> tuple[str, dict[str, Any]]:
    """Return the kind of a line and its values.

    Raises:
        ValueError: It is not a line of ours.
    """
    kind, values = json.loads(text)
    return kind, values


def event_line(event: Event) -> str:
    """Return an event as a line."""
    return line("message" if isinstance(event, Message) else "progress", **asdict(event))


def event_of(kind: str, values: dict[str, Any]) -> Event | None:
    """Return the event that a line is of; None where it is of none."""
    made = _EVENTS.get(kind)
    return None if made is None else made(**values)


def error_line(error: Exception) -> str:
    """Return an error as a line, with its traceback."""
    text = "".join(traceback.format_exception(error))
    if isinstance(error, RecsysError):
        return line("error", type=type(error).__name__, message=error.message, hint=error.hint, traceback=text)
    if isinstance(error, OSError) and error.strerror:
        return line("error", errno=error.errno, message=error.strerror, filename=error.filename, traceback=text)
    return line("error", message=f"{type(error).__name__}: {error}", traceback=text)


def error_of(values: dict[str, Any], *, rank: int) -> Exception:
    """Return the error that a line is of, as one that can be raised here.

    Args:
        values: Of the line.
        rank: Which process said it.
    """
    if "errno" in values:
        error: Exception = OSError(values["errno"], values["message"], values["filename"])
    elif "hint" in values:
        kind = getattr(errors, values["type"], TrainingError)
        error = kind(values["message"], hint=values["hint"])
    else:
        error = RuntimeError(f"rank {rank}: {values['message']}")
    error.add_note(f"in rank {rank}:\n{values['traceback']}")
    return error
