"""What the user sees when a command does not end well: one message, what to do next, and the exit code."""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import sys
import traceback
from contextlib import suppress
from pathlib import Path

import typer

from recsys_cli.cli.escape import escaped
from recsys_cli.cli.session import Session
from recsys_cli.errors import DiskFullError, RecsysError, TrainingError

UNEXPECTED, USAGE, INTERRUPTED = 1, 2, 130
_NO_MEMORY = ("alloc_cpu", "not enough memory", "out of memory")
_FLAGS = ("--json", "--quiet", "-q", "--verbose", "-v")
_WITH_VALUE = ("--workspace", "-w", "--trust")


def hoist(args: list[str]) -> list[str]:
    """Move the global options to the front, so that `recsys etl x.yaml --json` is the same as `recsys --json etl x.yaml`."""
    front: list[str] = []
    rest: list[str] = []
    left = iter(args)
    for arg in left:
        if arg == "--":
            rest += [arg, *left]
        elif arg in _FLAGS or arg.startswith(("--workspace=", "--trust=")):
            front.append(arg)
        elif arg in _WITH_VALUE:
            front += [arg, *(value for value in [next(left, None)] if value is not None)]
        else:
            rest.append(arg)
    return front + rest


def explain(error: Exception, line: list[str], session: Session | None = None) -> int:
    """Show an error as its kind deserves and return the exit code.

    Args:
        error: What came out of the command.
        line: The command line, to know `--json` and `--verbose` even where it could not be read.
        session: What was read of the line, to name the stage that the disk was too small for.
    """
    error = _named(error, session)
    as_json, verbose = "--json" in line, bool({"--verbose", "-v"} & set(line))
    if isinstance(error, typer.Abort):  # Ctrl-C while the line was read
        return interrupted(None)
    if isinstance(error, OSError) and error.errno == errno.EPIPE:
        # The reader has gone (`recsys ls ops | head`): nobody is there to be told.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNEXPECTED
    if isinstance(error, DiskFullError) and session is not None and session.stage:
        return show_error(f"{error.message} (stage: {session.stage})", error.hint, error.exit_code, as_json=as_json)
    if isinstance(error, RecsysError):
        return show_error(error.message, _for_this_python(error.hint), error.exit_code, as_json=as_json)
    if hasattr(error, "format_message"):  # what the parser of the line raises; its class has no public name
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "recsys"
        message = error.format_message().replace(": Value error, ", ": ")
        return show_error(message, f"{command} --help", USAGE, as_json=as_json)
    if _is_out_of_memory(error):
        hint: str | None = (
            "recsys train --plan shows what training needs; etl.memory_mib and train.memory_mib are budgets in MiB"
        )
        return show_error(f"not enough memory: {error}", hint, TrainingError.exit_code, as_json=as_json)
    if isinstance(error, OSError) and error.strerror and not verbose:
        where = f"{error.filename}: " if error.filename else ""
        hint = "look at the path, its permissions and the space on the disk; --verbose shows the traceback"
        return show_error(f"{where}{error.strerror}", hint, UNEXPECTED, as_json=as_json)
    if verbose:
        traceback.print_exception(error, file=sys.stderr)
        hint = None
    else:
        hint = "run it again with --verbose to see the traceback; this is a bug if the message does not help you"
    return show_error(f"unexpected {type(error).__name__}: {error}", hint, UNEXPECTED, as_json=as_json)


def _is_out_of_memory(error: Exception) -> bool:
    """Whether an error of Python, numpy or torch says that memory could not be had."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(text in str(error) for text in _NO_MEMORY)
    )


def _for_this_python(hint: str | None) -> str | None:
    """Name the interpreter in a command that installs something, where the shell's `pip` is another's."""
    pip = shutil.which("pip")
    if hint is None or "pip install" not in hint or (pip and Path(pip).parent == Path(sys.executable).parent):
        return hint
    return hint.replace("pip install", f"{shlex.quote(sys.executable)} -m pip install")


def _named(error: Exception, session: Session | None) -> Exception:
    """Return an error of a library that found the disk full as one that says so."""
    if isinstance(error, RecsysError) or session is None or hasattr(error, "format_message"):
        return error
    from recsys_cli.workspace.writing import disk_full, is_disk_full

    if not is_disk_full(error):
        return error
    name = getattr(error, "filename", None)
    return disk_full(Path(name) if isinstance(name, str) else session.root)


def interrupted(session: Session | None) -> int:
    """Say how to go on after Ctrl-C and return the exit code."""
    stage = session.stage if session else None
    if stage == "train":
        hint = "recsys train --resume goes on where it stopped"
    else:
        hint = "run the same command again; what was finished is kept"
    return show_error("interrupted", hint, INTERRUPTED, as_json=bool(session and session.as_json))


def show_error(message: str, hint: str | None, code: int, *, as_json: bool) -> int:
    """Write one error: to stderr for people, or as a JSON object to stdout."""
    if as_json:
        typer.echo(json.dumps({"error": {"message": message, "hint": hint, "exit_code": code}}, indent=2))
        return code
    message, hint = escaped(message), hint and escaped(hint)
    plain = bool(os.environ.get("NO_COLOR")) or not sys.stderr.isatty()
    for label, text, colour in (("error", message, typer.colors.RED), ("hint", hint, typer.colors.CYAN)):
        if text:
            head = f"{label}:" if plain else typer.style(f"{label}:", fg=colour, bold=True)
            with suppress(OSError):  # the terminal may be gone
                typer.echo(f"{head} {text}", err=True, color=not plain)
    return code
