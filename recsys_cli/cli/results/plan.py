"""What `recsys train --plan` found: each table, what takes memory where, and what would make it fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from recsys_cli.cli.quantities import size
from recsys_cli.cli.tables import line, table

if TYPE_CHECKING:
    from rich.console import Console

_PLACES = {"host": "host", "device": "GPU"}


def draw(to: Console, found: Mapping[str, Any]) -> None:
    """Show what training would need, and whether it is there."""
    cells = [
        (
            each["name"],
            f"{each['rows']:,}",
            str(each["width"]),
            *(size(each[part]) for part in ("weights", "state", "gradient")),
        )
        for each in found["tables"]
    ]
    table(to, "", ("embedding table", "rows", "width", "weights", "optimizer state", "gradient"), cells)
    needs = [(need["what"], need["note"], _PLACES[need["place"]], size(need["num_bytes"])) for need in found["needs"]]
    table(to, "", ("memory for", "", "where", "needed"), needs, text=3)
    several = f", {found['processes']} processes" if found["processes"] > 1 else ""
    line(to, f"{found['model']} on {found['device']}, {found['precision']}{several}; nothing was trained")
    for place in found["places"]:
        text = f"{_PLACES[place['place']]}: {size(place['needed'])} needed, {size(place['there'])} free"
        line(to, f"{text}: {'fits' if place['fits'] else 'does not fit'}", style="" if place["fits"] else "yellow")
    if found["ways"]:
        line(to, "what helps, each on top of those before it:")
    for way in found["ways"]:
        left = "fits" if way["fits"] else f"still {size(way['short'])} too much"
        line(to, f"{way['set']}: {left}", indent=2)
