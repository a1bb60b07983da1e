"""Write docs/results.md and docs/scale.md from scripts/results/*.json, by the lists of tables in page.yaml and scale.yaml there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
PAGES = {"page": ROOT / "docs" / "results.md", "scale": ROOT / "docs" / "scale.md"}
RESULTS = ROOT / "scripts" / "results"
TRIPLE = re.compile(r"[\d.]+ / ([\d.]+) / [\d.]+")
"""Minimum, median and maximum."""


def page(name: str) -> str:
    """Return the page of a list as Markdown."""
    machine, sections = "", []
    for table in yaml.safe_load((RESULTS / f"{name}.yaml").read_text()):
        if "text" in table:
            sections.append(table["text"])
            continue
        found = json.loads((RESULTS / f"{table['file']}.json").read_text())
        before, machine = machine, measured(found) or machine
        sections.append(section(table, found, machine if machine != before else ""))
    return "\n".join(sections)


def section(table: dict[str, Any], found: dict[str, Any], machine: str) -> str:
    """Return heading, sentence and rows of a table."""
    rows = at(found, table.get("rows", ""))
    named = dict(enumerate(rows)) if isinstance(rows, list) else {key: rows[key] for key in table.get("only", rows)}
    names = [] if isinstance(rows, list) else [""]
    lines = [[*names, *table["columns"]], ["---"] * (len(names) + len(table["columns"]))]
    for name, row in named.items():
        lines.append([*([str(name)] if names else []), *(cell(at(row, path)) for path in table["columns"].values())])
    body = "\n".join(f"|{'|'.join(line)}|" for line in lines)
    work = f"{table['work']} {machine}".rstrip()
    return f"## {table['title']}\n\n{work}\n\n{body}\n"


def measured(found: dict[str, Any]) -> str:
    """Return the machine of a file, as far as it has one."""
    machine = found.get("machine", {})
    processor = machine.get("processor", "").replace("(R)", "").replace(" Processor", "").partition(" @")[0]
    return f"{machine['cores']} cores, {processor}." if machine else ""


def at(found: Any, path: str) -> Any:
    """Return the value behind keys with `>` between them, or None."""
    for key in path.split(">") if path else ():
        found = found.get(key) if isinstance(found, dict) else None
    return found


def cell(value: Any) -> str:
    """Return a value as text of a cell."""
    match value:
        case None:
            return "–"
        case {"gain": gain, "interval": [low, high]} | {"difference": gain, "low": low, "high": high}:
            return f"{gain:+} [{low}, {high}]"
        case [float(), float() as median, float()]:
            return cell(median)
        case [single]:
            return cell(single)
        case str():
            return found[1] if (found := TRIPLE.fullmatch(value)) else value
        case float() if value >= 1000:
            return f"{value:,.0f}"
        case float():
            return f"{value:.4g}"
        case _:
            return str(value)


if __name__ == "__main__":
    for each, path in PAGES.items():
        path.write_text(page(each))
