"""Lines and files of the packages against the budget of pyproject.toml; `make lint` runs it.

usage: budget.py

Exits with 1 if a number exceeds its budget.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Print the table, and the numbers above their budget."""
    budget: dict[str, dict[str, int]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["budget"]
    exceeded = []
    print(f"{'':24}{'lines':>8}{'budget':>8}{'files':>7}{'budget':>8}")
    for name, most in budget.items():
        files = sorted((ROOT / name).rglob("*.py"))
        lines = sum(file.read_bytes().count(b"\n") for file in files)
        print(f"{name:24}{lines:8,}{most['lines']:8,}{len(files):7,}{most.get('files', ''):>8}")
        if lines > most["lines"] or len(files) > most.get("files", len(files)):
            exceeded.append(name)
    known = {path.name for path in (ROOT / "recsys_cli").iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    exceeded += sorted(f"recsys_cli/{name} has no budget" for name in known if f"recsys_cli/{name}" not in budget)
    if exceeded:
        print(
            f"above the budget of pyproject.toml: {', '.join(exceeded)}\n"
            "simplify there, or raise the number in [tool.budget], with a line in docs/decisions.md on what it buys",
            file=sys.stderr,
        )
    return bool(exceeded)


if __name__ == "__main__":
    sys.exit(main())
