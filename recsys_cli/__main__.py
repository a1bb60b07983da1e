"""The console script `recsys`, and `python -m recsys_cli`. Ctrl-C and SIGTERM exit without a traceback, even during imports."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


def main() -> None:
    """Import and run the command line."""
    _open_closed_streams()
    try:
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _terminate)
        from recsys_cli.cli import main as run

        run()
    except KeyboardInterrupt as error:
        sys.stderr.write("error: interrupted\n")
        from recsys_cli.errors import interrupt_code

        sys.exit(interrupt_code(error))


def _terminate(number: int, frame: FrameType | None) -> None:
    """End the command as Ctrl-C does; more signals do not disturb its end."""
    del frame
    from recsys_cli.errors import Terminated

    signal.signal(number, signal.SIG_IGN)
    Terminated.received = True
    raise Terminated


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
