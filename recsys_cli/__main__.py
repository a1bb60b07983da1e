"""The console script `recsys`, and `python -m recsys_cli`. Ctrl-C exits without a traceback, even during imports."""

from __future__ import annotations

import sys

_INTERRUPTED = 130


def main() -> None:
    """Import and run the command line."""
    try:
        from recsys_cli.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # the current directory: plugins are found as by the script `recsys`
    main()
