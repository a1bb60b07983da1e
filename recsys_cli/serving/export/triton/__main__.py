"""Serve a model repository: python -m recsys_cli.serving.export.triton FOLDER [--http-port 8000] [--grpc-port 8001]."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import Any

from recsys_cli.errors import RecsysError
from recsys_cli.serving.export.triton.server import triton_server


def main() -> int:
    """Serve until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m recsys_cli.serving.export.triton", description=__doc__)
    parser.add_argument("folder", type=Path, help="output of recsys export --format triton")
    parser.add_argument("--http-port", type=int, default=8000)
    parser.add_argument("--grpc-port", type=int, default=8001)
    line, more = parser.parse_known_args()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with triton_server(line.folder, http=line.http_port, grpc=line.grpc_port, more=more) as server:
            names = ", ".join(sorted(path.parent.name for path in line.folder.glob("*/config.pbtxt")))
            sys.stdout.write(f"{server.url}/v2/models serves {names}; gRPC on port {server.grpc}; Ctrl-C ends it\n")
            sys.stdout.flush()
            return server.process.wait()
    except KeyboardInterrupt:
        return 0
    except RecsysError as error:
        sys.stderr.write(f"{error.message}\n{error.hint or ''}\n")
        return error.exit_code


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
