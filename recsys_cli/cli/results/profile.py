"""What `recsys train --profile` found: where the time of a step goes, by phase and by operation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from recsys_cli.cli.quantities import amount, share, size
from recsys_cli.cli.tables import line, table

if TYPE_CHECKING:
    from rich.console import Console


def draw(to: Console, found: Mapping[str, Any]) -> None:
    """Show phases and operations, the largest first, and where the trace is."""
    step = found["seconds"]
    on_gpu = found["device"] == "cuda"
    heads = ("a step", "time", "share", *(("on the GPU",) if on_gpu else ()))
    table(to, "", heads, [_row(phase, step, on_gpu=on_gpu) for phase in found["phases"]])
    cells = [
        (op["name"], amount(op["calls"]), _time(op["seconds"]), share(op["seconds"] / step))
        for op in found["operations"]
    ]
    table(to, "", ("operation", "calls a step", "time", "share"), cells)
    rows = amount(found["rows"] / found["unprofiled_seconds"])
    line(
        to,
        f"{found['steps']} steps of {found['rows']:,} rows on {found['device']}, {found['precision']}: {_time(step)} each",
    )
    line(to, f"without the profiler {_time(found['unprofiled_seconds'])}, which is {rows} rows/s")
    peak = ", ".join(f"{size(most)} of the {place}" for place, most in found["peak_memory"].items())
    line(to, f"at most {peak}; no run is kept")
    line(to, f"trace: {found['trace']} (for ui.perfetto.dev or chrome://tracing)")


def _row(phase: Mapping[str, Any], step: float, *, on_gpu: bool) -> tuple[str, ...]:
    device = (_time(phase["device_seconds"]),) if on_gpu else ()
    return (phase["name"], _time(phase["seconds"]), share(phase["seconds"] / step), *device)


def _time(seconds: float) -> str:
    return f"{1_000 * seconds:.2f} ms"
