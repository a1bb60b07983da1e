"""The error boundary of the command line: exceptions become a message, a hint and an exit code."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
import traceback
from contextlib import suppress
from pathlib import Path

import typer

from recsys_cli.cli.session import Session
from recsys_cli.cli.tables import escaped
from recsys_cli.errors import ConfigError, DiskFullError, RecsysError, TrainingError, interrupt_code

UNEXPECTED, USAGE, CLOSED_PIPE = 1, 2, 141
_LONG_WORD = re.compile(r"(\S{300})\S{200,}")
_NO_MEMORY = ("alloc_cpu", "not enough memory", "out of memory")
_FLAGS = ("--json", "--quiet", "-q", "--verbose", "-v")
_WITH_VALUE = ("--workspace", "-w", "--trust")


def hoist(args: list[str]) -> list[str]:
    """Move the global options to the front: `recsys etl x.yaml --json` becomes `recsys --json etl x.yaml`."""
    front: list[str] = []
    rest: list[str] = []
    remaining = iter(args)
    for arg in remaining:
        if arg == "--":
            rest += [arg, *remaining]
        elif arg in _FLAGS or arg.startswith(("--workspace=", "--trust=")):
            front.append(arg)
        elif arg in _WITH_VALUE:
            front += [arg, *(value for value in [next(remaining, None)] if value is not None)]
        elif arg == "--output" or arg.startswith("--output="):  # of earlier versions
            rest.append("--out" + arg.removeprefix("--output"))
        else:
            rest.append(arg)
    return front + rest


def explain(error: Exception, line: list[str], session: Session | None = None) -> int:
    """Show an error and return the exit code; the line has `--json` and `--verbose` even after a parse error."""
    error = _as_disk_full(error, session)
    as_json, verbose = "--json" in line, bool({"--verbose", "-v"} & set(line))
    if isinstance(error, typer.Abort):  # Ctrl-C during parsing
        return interrupted(KeyboardInterrupt(), None)
    if isinstance(error, DiskFullError) and session is not None and session.stage:
        return show_error(f"{error.message} (stage: {session.stage})", error.hint, error.exit_code, as_json=as_json)
    if isinstance(error, RecsysError):
        if verbose and error.__cause__ is not None:  # such as an exception of a plugin
            traceback.print_exception(error.__cause__, file=sys.stderr)
        step = _for_this_python(session.located(error.hint) if session else error.hint)
        return show_error(error.message, step, error.exit_code, as_json=as_json)
    if hasattr(error, "format_message"):  # a usage error of click; typer does not export its class
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "recsys"
        message = error.format_message().replace(": Value error, ", ": ")
        return show_error(message, f"{command} --help", USAGE, as_json=as_json)
    is_full = isinstance(error, RuntimeError) and any(text in str(error) for text in _NO_MEMORY)
    if is_full or isinstance(error, MemoryError):
        hint: str | None = (
            "`recsys train --plan` prints a memory estimate; etl.memory_mib and train.memory_mib are budgets in MiB"
        )
        return show_error(f"not enough memory: {error}", hint, TrainingError.exit_code, as_json=as_json)
    if isinstance(error, OSError) and error.strerror and not verbose:
        known = RecsysError.of_system(error)
        return show_error(
            known.message, f"{known.hint}; --verbose shows the traceback", known.exit_code, as_json=as_json
        )
    if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed" and not verbose:
        name = error.object.encode(errors="surrogateescape")
        return show_error(f"the name {name!r} is not UTF-8", "use another name", ConfigError.exit_code, as_json=as_json)
    if verbose:
        traceback.print_exception(error, file=sys.stderr)
    hint = None if verbose else "--verbose shows the traceback; report it as a bug if the message does not help"
    return show_error(f"unexpected {type(error).__name__}: {error}", hint, UNEXPECTED, as_json=as_json)


def _for_this_python(hint: str | None) -> str | None:
    """Replace `pip` in a hint by this interpreter's if the shell's pip belongs to another Python."""
    pip = shutil.which("pip")
    if hint is None or "pip install" not in hint or (pip and Path(pip).parent == Path(sys.executable).parent):
        return hint
    return re.sub(r"(?<!/)pip install", lambda _: f"{shlex.quote(sys.executable)} -m pip install", hint)


def _as_disk_full(error: Exception, session: Session | None) -> Exception:
    if isinstance(error, RecsysError) or session is None or hasattr(error, "format_message"):
        return error
    from recsys_cli.workspace.files import disk_full, is_disk_full

    if not is_disk_full(error):
        return error
    name = getattr(error, "filename", None)
    return disk_full(Path(name) if isinstance(name, str) else session.root)


def closed_pipe() -> int:
    """Discard further output, because the reader has gone (`recsys ls ops | head`), and return the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return CLOSED_PIPE


def interrupted(error: KeyboardInterrupt, session: Session | None, command: str | None = None) -> int:
    """Explain how to continue after Ctrl-C or SIGTERM and return the exit code."""
    hint = "run the same command again; finished parts are kept"
    if session and session.stage and command in {"run", "train"}:
        hint = f"continue with: recsys {'run' if command == 'run' else 'train --resume'}"
    as_json = bool(session and session.as_json)
    located = session.located(hint) if session else hint
    return show_error("interrupted", located, interrupt_code(error), as_json=as_json)


def show_error(message: str, hint: str | None, code: int, *, as_json: bool) -> int:
    """Write an error to stderr, or as a JSON object to stdout."""
    if as_json:
        typer.echo(json.dumps({"error": {"message": message, "hint": hint, "exit_code": code}}, indent=2))
        return code
    message, hint = (escaped(_LONG_WORD.sub(r"\1…", text or "")) for text in (message, hint))
    plain = bool(os.environ.get("NO_COLOR")) or not sys.stderr.isatty()
    for label, text, color in (("error", message, typer.colors.RED), ("hint", hint, typer.colors.CYAN)):
        if text:
            head = f"{label}:" if plain else typer.style(f"{label}:", fg=color, bold=True)
            with suppress(OSError):  # the terminal may be closed
                typer.echo(f"{head} {text}", err=True, color=not plain)
    return code
