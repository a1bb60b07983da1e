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
    """Draw the memory estimate and the free memory."""
    cells = [
        (
            each["name"],
            f"{each['rows']:,}",
            str(each["width"]),
            *(size(each[part]) for part in ("weights", "state", "gradient")),
        )
        for each in result["tables"]
    ]
    table(to, "", ("embedding table", "rows", "width", "weights", "optimizer state", "gradient"), cells)
    needs = [(need["what"], need["note"], _DEVICES[need["place"]], size(need["num_bytes"])) for need in result["needs"]]
    table(to, "", ("memory for", "", "device", "needed"), needs, text=3)
    several = f", {result['processes']} processes" if result["processes"] > 1 else ""
    line(to, f"{result['model']} on {result['device']}, {result['precision']}{several}; nothing was trained")
    for place in result["places"]:
        text = f"{_DEVICES[place['place']]}: {size(place['needed'])} needed, {size(place['there'])} free"
        line(to, f"{text}: {'fits' if place['fits'] else 'does not fit'}", style="" if place["fits"] else "yellow")
    if result["ways"]:
        line(to, "ways to reduce memory, cumulative:")
    for way in result["ways"]:
        outcome = "fits" if way["fits"] else f"still {size(way['short'])} too much"
        line(to, f"{way['set']}: {outcome}", indent=2)
