"""The console script `recsys`, and `python -m recsys_cli`: Ctrl-C ends it without a traceback, even while it is still loading."""

from __future__ import annotations

import sys

_INTERRUPTED = 130


def main() -> None:
    """Load the command line and answer."""
    try:
        from recsys_cli.cli import main as answer

        answer()
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
