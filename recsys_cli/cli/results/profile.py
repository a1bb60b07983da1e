"""Result of `recsys train --profile`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from recsys_cli.cli.quantities import amount, share, size
from recsys_cli.cli.tables import line, table

if TYPE_CHECKING:
    from rich.console import Console


def draw(to: Console, result: Mapping[str, Any]) -> None:
    """Draw the operations, slowest first, and the path of the trace."""
    step = result["seconds"]
    cells = [
        (op["name"], amount(op["calls"]), _time(op["seconds"]), share(op["seconds"] / step))
        for op in result["operations"]
    ]
    table(to, "", ("operation", "calls per step", "time", "share"), cells)
    line(
        to,
        f"{result['steps']} steps of {result['rows']:,} rows on {result['device']}, {result['precision']}: {_time(step)} each",
    )
    peak = ", ".join(f"{size(most)} ({device})" for device, most in result["peak_memory"].items())
    line(to, f"peak memory: {peak}; no run is kept")
    line(to, f"trace: {result['trace']} (for ui.perfetto.dev or chrome://tracing)")


def _time(seconds: float) -> str:
    return f"{1_000 * seconds:.2f} ms"
