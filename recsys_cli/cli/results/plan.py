"""Result of `recsys train --plan`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from recsys_cli.cli.quantities import duration, size
from recsys_cli.cli.tables import line, table

if TYPE_CHECKING:
    from rich.console import Console

_NOTICEABLE = 0.1
"""Shortest validation worth a mention, in seconds."""
_DEVICES = {"host": "host", "device": "GPU"}


def draw(to: Console, result: Mapping[str, Any]) -> None:
    """Draw the memory estimate, the free memory and the expected time; of each candidate of `auto`."""
    if candidates := result.get("candidates"):
        for label, plan in candidates.items():
            line(to, label if plan else f"{label}: fitted at once, without training steps", style="bold")
            if plan:
                draw(to, plan)
        return
    cells = [
        (
            each["name"],
            f"{each['rows']:,}",
            str(each["width"]),
            *(size(each[part]) for part in ("weights", "state", "gradient")),
        )
        for each in result["tables"]
    ]
    if cells:
        table(to, "", ("embedding table", "rows", "width", "weights", "optimizer state", "gradient"), cells)
    needs = [(need["what"], need["note"], _DEVICES[need["place"]], size(need["num_bytes"])) for need in result["needs"]]
    if needs:
        table(to, "", ("memory for", "", "device", "needed"), needs, text=3)
    several = f", {result['processes']} processes" if result["processes"] > 1 else ""
    line(to, f"{result['model']} on {result['device']}, {result['precision']}{several}; nothing was trained")
    for place in result["places"]:
        text = f"{_DEVICES[place['place']]}: {size(place['needed'])} needed, {size(place['there'])} free"
        line(to, f"{text}: {'fits' if place['fits'] else 'does not fit'}", style="" if place["fits"] else "yellow")
    _draw_pace(to, result["pace"])
    if result["ways"]:
        line(to, "ways to reduce memory, cumulative:")
    for way in result["ways"]:
        outcome = "fits" if way["fits"] else f"still {size(way['short'])} too much"
        line(to, f"{way['set']}: {outcome}", indent=2)


def _draw_pace(to: Console, pace: Mapping[str, Any] | None) -> None:
    if pace is None:
        return
    step, epoch, (fewest, most) = 1000 * pace["step_seconds"], pace["epoch_seconds"], pace["epochs"]
    valid = f" and {duration(pace['valid_seconds'])} of validation" if pace["valid_seconds"] >= _NOTICEABLE else ""
    line(to, f"an epoch: {duration(epoch)}, {pace['steps']:,} steps of {step:.3g} ms{valid}, measured")
    if fewest == most:
        line(to, f"training: {duration(most * epoch)} for {most} epochs")
    else:
        text = f"{duration(fewest * epoch)} to {duration(most * epoch)} for {fewest} to {most} epochs"
        line(to, f"training: {text}, by early stopping")
    line(to, f"peak memory of the measurement: {size(pace['peak_memory']['host'])}")
