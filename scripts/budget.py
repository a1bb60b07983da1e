"""Lines and files of each package against the budget of pyproject.toml; `make lint` runs it.

usage: budget.py

Exits with 1 if a package exceeds its budget. To raise a number, write in docs/decisions.md what it buys.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Print the table, and the packages above their budget."""
    budget: dict[str, list[int]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["budget"]
    exceeded = []
    print(f"{'':24}{'lines':>8}{'budget':>8}{'files':>7}{'budget':>8}")
    for name, (max_lines, max_files) in budget.items():
        path = ROOT / name
        files = [path] if path.is_file() else sorted(path.rglob("*.py"))
        lines = sum(file.read_bytes().count(b"\n") for file in files)
        print(f"{name:24}{lines:8,}{max_lines:8,}{len(files):7,}{max_files:8,}")
        if lines > max_lines or len(files) > max_files:
            exceeded.append(name)
    known = {path.name for path in (ROOT / "recsys_cli").iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    exceeded += sorted(f"recsys_cli/{name} has no budget" for name in known if f"recsys_cli/{name}" not in budget)
    if exceeded:
        print(f"above the budget of pyproject.toml: {', '.join(exceeded)}", file=sys.stderr)
    return bool(exceeded)


if __name__ == "__main__":
    sys.exit(main())
