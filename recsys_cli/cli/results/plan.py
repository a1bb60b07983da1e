"""Result of `recsys train --plan`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from recsys_cli.cli.quantities import size
from recsys_cli.cli.tables import line, table

if TYPE_CHECKING:
    from rich.console import Console

_DEVICES = {"host": "host", "device": "GPU"}


def draw(to: Console, result: Mapping[str, Any]) -> None:
    """Draw the memory estimate and the free memory; of each candidate of `auto`."""
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
    if needs:
        line(to, "activations of a batch come on top of this")
    for place in result["places"]:
        text = f"{_DEVICES[place['place']]}: {size(place['needed'])} needed, {size(place['there'])} free"
        line(to, f"{text}: {'fits' if place['fits'] else 'does not fit'}", style="" if place["fits"] else "yellow")
