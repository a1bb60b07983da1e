"""What `recsys bench` found: the models from best to worst."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recsys_cli.cli.quantities import amount, duration
from recsys_cli.cli.tables import line, table

if TYPE_CHECKING:
    from rich.console import Console

    from recsys_cli.evaluation.compare.leaderboard import Leaderboard

_SAME = "="


def result(found: Leaderboard, *, html: Path | None) -> dict[str, Any]:
    """Gather the leaderboard and where its page is."""
    return {**found.model_dump(mode="json"), "report": None if html is None else str(html)}


def draw(to: Console, found: Mapping[str, Any]) -> None:
    """Show the table, what failed, and who may be as good as the best."""
    from recsys_cli.evaluation.compare.leaderboard import Leaderboard, in_words
    from recsys_cli.evaluation.metrics.named import title_of

    board = Leaderboard.model_validate({key: value for key, value in found.items() if key != "report"})
    metrics = found["metrics"]
    title = f"{found['split']}: {found['users']:,} users, {found['rows']:,} rows; by {title_of(found['metric'])}"
    headings = ("", "model", *map(title_of, metrics), "95 % interval", "training", "parameters")
    table(to, title, headings, [_row(one, metrics) for one in found["standings"]], text=2)
    line(to, in_words(board))
    seeds = f"; ± standard deviation over {len(found['seeds'])} seeds" if len(found["seeds"]) > 1 else ""
    line(to, f"{_SAME} cannot be told apart from the best; (baseline) is beside every evaluation{seeds}", style="dim")
    for failure in found["failures"]:
        line(to, f"{failure['label']}, seed {failure['seed']} failed: {failure['message']}", style="yellow")
    if found["report"]:
        line(to, f"page: {found['report']}")


def _row(one: Mapping[str, Any], metrics: list[str]) -> tuple[str, ...]:
    from recsys_cli.evaluation.compare.leaderboard import Score
    from recsys_cli.evaluation.compare.leaderboard_page import figure

    apart, first = one["from_best"], one["scores"][metrics[0]]
    same = apart is not None and apart["verdict"] == "noise"
    return (
        f"{one['place']}{_SAME if same else ''}",
        f"{one['label']} (baseline)" if one["is_baseline"] else one["label"],
        *(figure(Score.model_validate(one["scores"][metric])) for metric in metrics),
        "" if first["low"] is None else f"[{first['low']:.4f}, {first['high']:.4f}]",
        "" if one["seconds"] is None else duration(one["seconds"]),
        "" if one["parameters"] is None else amount(one["parameters"]),
    )
