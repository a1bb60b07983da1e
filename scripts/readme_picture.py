"""Draw docs/images/evaluate.svg: the terminal after `recsys evaluate` on the demo. Takes half a minute.

usage: readme_picture.py [OUT.svg]
"""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

RECSYS = str(Path(sys.executable).with_name("recsys"))
OUT = Path(__file__).resolve().parents[1] / "docs" / "images" / "evaluate.svg"
WIDTH = 104


def main() -> None:
    """Train the demo, evaluate it in a terminal, and write the picture."""
    out = Path(sys.argv[1]) if sys.argv[1:] else OUT
    with tempfile.TemporaryDirectory() as folder:
        for stage in (["download", "configs/demo.yaml"], ["etl", "configs/demo.yaml"], ["train"]):
            subprocess.run([RECSYS, "-q", *stage], cwd=folder, check=True)
        printed = in_terminal([RECSYS, "evaluate"], folder)
    console = Console(record=True, width=WIDTH, file=io.StringIO(), color_system="truecolor", force_terminal=True)
    console.print(Text.from_ansi("$ recsys evaluate\n" + printed))
    out.write_text(console.export_svg(title="recsys evaluate", unique_id="evaluate"))


def in_terminal(command: list[str], folder: str) -> str:
    """Run a command in a pseudo-terminal; return its stdout with colors."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(WIDTH), "TERM": "xterm-256color"}
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=theirs, stderr=subprocess.DEVNULL)
    os.close(theirs)
    parts = []
    try:
        while part := os.read(ours, 65_536):
            parts.append(part)
    except OSError:  # Linux: EIO after the last writer has gone
        pass
    if process.wait():
        raise SystemExit(f"{' '.join(command)} failed")
    return b"".join(parts).decode().replace("\r\n", "\n")


if __name__ == "__main__":
    main()
