"""Results of `recsys recommend` and `recsys score`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from recsys_cli.cli.quantities import amount, duration
from recsys_cli.cli.tables import line, table

if TYPE_CHECKING:
    from rich.console import Console

    from recsys_cli.stages.recommend_many import Written
    from recsys_cli.stages.score import Scored

_SOURCES = {
    "model": "by the model",
    "fold-in": "by the model, from the given history",
    "popularity": "the most popular items",
}


def draw(to: Console, result: Mapping[str, Any]) -> None:
    """Draw recommendations: titles, scores, reasons, and the number of seen items left out."""
    items, has_titles = result["items"], any(one["title"] for one in result["items"])
    heads = ("rank", *(("title",) if has_titles else ()), "item", "because")
    rows = [
        (str(one["rank"]), *((one["title"] or "",) if has_titles else ()), str(one["item"]), ", ".join(one["because"]),
         f"{one['score']:.4f}")
        for one in items
    ]  # fmt: skip
    if "user" not in result:
        about = f"similar to {result['item']['title'] or result['item']['item']}"
    else:
        about = "for the given history" if result["user"] is None else f"for user {result['user']}"
    source = _SOURCES.get(result["source"])
    table(to, f"{about}, {result['model']}{f': {source}' if source else ''}", (*heads, "score"), rows, text=len(heads))
    if result["num_seen"]:
        items_are = "item is" if result["num_seen"] == 1 else "items are"
        line(to, f"{result['num_seen']:,} seen {items_are} left out", style="dim")
    if result["note"]:
        line(to, result["note"], style="yellow")


def written(made: Written) -> dict[str, Any]:
    """Return the result of a file of recommendations as plain values."""
    return {
        "output": str(made.output),
        "users": made.users,
        "rows": made.rows,
        "without": made.without,
        "popular": made.popular,
        "why_popular": made.why_popular,
        "skipped": made.skipped,
        "seconds": round(made.seconds, 3),
        "rows_per_second": round(made.rows / made.seconds, 1) if made.seconds else None,
    }


def draw_written(to: Console, result: Mapping[str, Any]) -> None:
    """Draw the number of users and rows, and the file."""
    speed = f", {amount(result['rows_per_second'])} rows/s" if result["rows_per_second"] else ""
    if result["without"]:
        line(to, f"{result['without']:,} users have no recommendations: all items are seen or filtered", style="yellow")
    if result["popular"]:
        line(to, f"{result['popular']:,} users have the most popular items: {result['why_popular']}", style="yellow")
    if result["skipped"]:
        line(to, f"{result['skipped']:,} interactions of the histories have items that are not in train: they are skipped",
             style="yellow")  # fmt: skip
    line(to, f"{result['rows']:,} recommendations for {result['users']:,} users in {duration(result['seconds'])}{speed}: "
         f"{result['output']}")  # fmt: skip


def scored(made: Scored) -> dict[str, Any]:
    """Return the result of scored rows as plain values."""
    return {"output": str(made.output), "rows": made.rows, "probabilistic": made.probabilistic}


def draw_scored(to: Console, result: Mapping[str, Any]) -> None:
    """Draw the number of rows, and the file."""
    kind = "logits of a binary label, values of a numeric one"
    kind = kind if result["probabilistic"] else "they order items, and are no predictions"
    line(to, f"{result['rows']:,} scores ({kind}): {result['output']}")
