"""Result of `recsys train --profile`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from recsys_cli.cli.quantities import amount, share, size
from recsys_cli.cli.tables import line, table

if TYPE_CHECKING:
    from rich.console import Console


def draw(to: Console, result: Mapping[str, Any]) -> None:
    """Draw phases and operations, largest first, and the path of the trace."""
    step = result["seconds"]
    on_gpu = result["device"] == "cuda"
    heads = ("phase", "time", "share", *(("on the GPU",) if on_gpu else ()))
    table(to, "", heads, [_row(phase, step, on_gpu=on_gpu) for phase in result["phases"]])
    cells = [
        (op["name"], amount(op["calls"]), _time(op["seconds"]), share(op["seconds"] / step))
        for op in result["operations"]
    ]
    table(to, "", ("operation", "calls per step", "time", "share"), cells)
    rows = amount(result["rows"] / result["unprofiled_seconds"])
    line(
        to,
        f"{result['steps']} steps of {result['rows']:,} rows on {result['device']}, {result['precision']}: {_time(step)} each",
    )
    line(to, f"without the profiler: {_time(result['unprofiled_seconds'])} per step, {rows} rows/s")
    peak = ", ".join(f"{size(most)} ({device})" for device, most in result["peak_memory"].items())
    line(to, f"peak memory: {peak}; no run is kept")
    line(to, f"trace: {result['trace']} (for ui.perfetto.dev or chrome://tracing)")


def _row(phase: Mapping[str, Any], step: float, *, on_gpu: bool) -> tuple[str, ...]:
    device = (_time(phase["device_seconds"]),) if on_gpu else ()
    return (phase["name"], _time(phase["seconds"]), share(phase["seconds"] / step), *device)


def _time(seconds: float) -> str:
    return f"{1_000 * seconds:.2f} ms"
