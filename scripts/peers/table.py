"""The table that bench_peers.py prints of one model."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table


def show(title: str, facts: dict[str, Any]) -> None:
    """Print one row for each system; what ours is less a peer's stands beside the peer, with its 95 % interval."""
    systems, figure = facts["systems"], facts["figure of the verdict"]
    rounds = "" if facts["rounds"] == 1 else f", {facts['rounds']} rounds: min / median / max"
    table = Table(title=f"{title}{rounds}", title_justify="left")
    figures = [name for name in ("hr@10", "ndcg@10", "auc") if name in systems["ours"]]
    compared_by = (f"ours less, {figure}", "ours is", "fit + rank, s", "times ours", "prepare, s")
    for column in ("system", *figures, *compared_by, "GB", "settings"):
        table.add_column(column)
    for name, found in systems.items():
        compared = ["", "", _short(found["seconds (min / median / max)"]), "", _short(found["parts"]["prepare"])]
        if name != "ours":
            difference, low, high = found["ours less"][figure]
            compared[:2] = [f"{difference:+.4f} [{low:+.4f}, {high:+.4f}]", found["ours is"]]
            compared[3] = str(found["times ours' seconds"])
        settings = found.get("settings", "our defaults")
        table.add_row(name, *(f"{found[each]:.4f}" for each in figures), *compared, _short(found["peak_gb"]), settings)
    Console(width=180).print(table)


def _short(values: str) -> str:
    """Return minimum, median and maximum as one where they are of one round."""
    apart = values.split(" / ")
    return apart[0] if len(set(apart)) == 1 else values
