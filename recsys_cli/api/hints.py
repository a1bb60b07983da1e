"""Hints of errors in Python: the calls for the commands in a hint, and the hint in the traceback."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from recsys_cli.errors import RecsysError

_COMMAND = re.compile(r"recsys (download|etl|train|evaluate)\b([^`;,]*)")
_ARGUMENTS = {
    "download": ["dataset", "workspace"], "etl": ["config", "workspace"], "train": ["config", "workspace"], "evaluate": ["run"],
}  # fmt: skip
_FLAGS = ("force", "resume")


@contextmanager
def python_hints() -> Iterator[None]:
    """Add the Python calls to the hint of an error, and the hint to its traceback."""
    try:
        yield
    except RecsysError as error:
        if error.hint and not hasattr(error, "__notes__"):  # once, in nested calls
            error.hint = with_calls(error.hint)
            error.add_note(f"hint: {error.hint}")
        raise


def with_calls(hint: str) -> str:
    """Return a hint with the Python calls of its commands.

    Example:
        >>> with_calls("recsys etl --force")
        'recsys etl --force (in Python: recsys.etl(config, workspace, force=True))'
    """
    calls = dict.fromkeys(_call(*found.groups()) for found in _COMMAND.finditer(hint))
    return f"{hint} (in Python: {', '.join(calls)})" if calls else hint


def _call(stage: str, rest: str) -> str:
    flags = [f"{flag}=True" for flag in _FLAGS if f"--{flag}" in rest]
    return f"recsys.{stage}({', '.join([*_ARGUMENTS[stage], *flags])})"
