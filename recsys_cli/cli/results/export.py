"""Result of `recsys export`: folder, size, and verified rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from recsys_cli.cli.quantities import size
from recsys_cli.cli.tables import line

if TYPE_CHECKING:
    from rich.console import Console

    from recsys_cli.stages.export import Exported


def result(made: Exported) -> dict[str, Any]:
    """Return the result as plain values."""
    return {
        "folder": str(made.folder),
        "bytes": made.num_bytes,
        "verified_rows": made.verified,
        "manifest": {name: value for name, value in made.manifest.items() if name not in {"files", "checksum"}},
        "next": made.use,
    }


def draw(to: Console, result: Mapping[str, Any]) -> None:
    """Draw the folder, its size, and the next command."""
    tables = result["manifest"].get("tables")
    if result["verified_rows"]:
        quantized = f" with {tables['type']} tables" if tables else ""
        line(to, f"{result['verified_rows']:,} raw rows have equal scores by the run{quantized} and by the export")
    if tables:
        line(to, f"tables as {tables['type']}: {size(tables['bytes'])} instead of {size(tables['fp32_bytes'])}")
        for name, metric in tables["metrics"].items():
            if {"fp32", "quantized"} <= set(metric):
                change = metric["quantized"] - metric["fp32"]
                line(to, f"  {name} on {tables['split']}: {metric['quantized']:.4f}, {change:+.5f} to fp32")
    line(to, f"{size(result['bytes'])} written to {result['folder']}")
    line(to, f"next: {result['next']}", style="dim")
