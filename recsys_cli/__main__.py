"""The console script `recsys`, and `python -m recsys_cli`. Ctrl-C exits without a traceback, even during imports."""

from __future__ import annotations

import os
import sys

_INTERRUPTED = 130


def main() -> None:
    """Import and run the command line."""
    _open_closed_streams()
    try:
        from recsys_cli.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        sys.exit(_INTERRUPTED)


def _open_closed_streams() -> None:
    """Open closed standard streams on the null device: the next opened file would get what is printed."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(opened, "r" if number == 0 else "w", encoding="utf-8"))


if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # the current directory: plugins are found as by the script `recsys`
    main()
