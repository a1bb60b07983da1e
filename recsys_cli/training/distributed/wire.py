"""Events and errors of worker processes for their parent, one line of JSON each."""

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
    """Encode a kind and its values as a line."""
    return json.dumps([kind, values], default=str)


def parse(text: str) -> tuple[str, dict[str, Any]]:
    """Decode a line into its kind and values; a `ValueError` for other text."""
    kind, values = json.loads(text)
    return kind, values


def event_line(event: Event) -> str:
    """Encode an event as a line."""
    return line("message" if isinstance(event, Message) else "progress", **asdict(event))


def event_of(kind: str, values: dict[str, Any]) -> Event | None:
    """Decode an event; None for another kind of line."""
    event_type = _EVENTS.get(kind)
    return None if event_type is None else event_type(**values)


def error_line(error: Exception) -> str:
    """Encode an error and its traceback as a line."""
    text = "".join(traceback.format_exception(error))
    if isinstance(error, RecsysError):
        return line("error", type=type(error).__name__, message=error.message, hint=error.hint, traceback=text)
    if isinstance(error, OSError) and error.strerror:
        return line("error", errno=error.errno, message=error.strerror, filename=error.filename, traceback=text)
    return line("error", message=f"{type(error).__name__}: {error}", traceback=text)


def error_of(values: dict[str, Any], *, rank: int) -> Exception:
    """Decode an error of a rank into an exception for the parent process."""
    if "errno" in values:
        error: Exception = OSError(values["errno"], values["message"], values["filename"])
    elif "hint" in values:
        kind = getattr(errors, values["type"], TrainingError)
        error = kind(values["message"], hint=values["hint"])
    else:
        error = RuntimeError(f"rank {rank}: {values['message']}")
    error.add_note(f"in rank {rank}:\n{values['traceback']}")
    return error
