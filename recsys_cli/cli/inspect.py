"""The command `recsys inspect`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recsys_cli.cli.completion import complete_run
from recsys_cli.cli.session import Session
from recsys_cli.cli.tables import facts, line, notes, table

if TYPE_CHECKING:
    from rich.console import Console

_MARK = "*"
_WIDE = 72
"""Minimum terminal width in columns for the features of an item next to its title."""


class InspectedKind(StrEnum):
    """Users or items."""

    USER = "user"
    ITEM = "item"


def inspect(
    ctx: typer.Context,
    kind: Annotated[InspectedKind, typer.Argument(metavar="user|item", help="Kind of the ID.", show_default=False)],
    name: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="Id in the raw data, such as a movieId, or the title of an item.", show_default=False
        ),
    ],
    run: Annotated[
        str | None,
        typer.Option(
            help="Run (name, its beginning or end, or its model). Default: the best run of the current data on valid.",
            metavar="RUN",
            show_default=False,
            autocompletion=complete_run,
        ),
    ] = None,
    k: Annotated[int, typer.Option(help="Rows per list.", min=1)] = 10,
) -> None:
    """Show history, recommendations and hits of a user or an item."""
    from recsys_cli.cli.runs import named_run
    from recsys_cli.stages.inspect import inspect_item, inspect_user

    session: Session = ctx.obj
    with session.working("inspect") as emit:
        trained = named_run(session, run, emit)
    if kind is InspectedKind.USER:
        session.answer(inspect_user(trained, session.workspace, name, k=k), draw_user)
    else:
        session.answer(inspect_item(trained, session.workspace, name, k=k), draw_item)


def draw_user(to: Console, result: Mapping[str, Any]) -> None:
    """Draw a user: counts, history and recommendations."""
    from recsys_cli.page import day

    facts(to, [("user", _plain(result["user"])), *_features(result), *_counts(result), ("run", result["run"])])
    to.print()
    history, recommended = result["history"], result["recommended"]
    past = [(*_title(to, one), "" if one["time"] is None else day(one["time"]), f"{one['label']:g}") for one in history]
    table(to, "history, newest first", (*_heads(to), "time", result["label"]), past, text=len(_heads(to)))
    best = [(*_title(to, one), f"{one['score']:.4f}", _MARK if one["hit"] else "") for one in recommended]
    table(to, "recommended, best first", (*_heads(to), "score", "hit"), best, text=len(_heads(to)))
    if recommended and result["split"]:
        hits = sum(one["hit"] for one in recommended)
        line(to, f"{_MARK} {hits} of {result['to_find']} relevant items in {result['split']}", style="dim")
    notes(to, result["notes"])


def draw_item(to: Console, result: Mapping[str, Any]) -> None:
    """Draw an item: counts, users with the item recommended, and nearest items."""
    facts(
        to,
        [
            ("item", _plain(result["item"])),
            ("title", _plain(result["title"] or "")),
            *_features(result),
            *_counts(result),
            ("popularity", _popularity(result["popularity"])),
            ("run", result["run"]),
        ],
    )
    to.print()
    if result["recommended"]:
        _draw_recommended(to, result["recommended"])
    near = [(*_title(to, one), f"{one['cosine']:.4f}") for one in result["nearest"]]
    table(to, "nearest items", (*_heads(to), "cosine"), near, text=len(_heads(to)))
    notes(to, result["notes"])


def _popularity(popularity: Mapping[str, Any]) -> str:
    if popularity["place"] is None:
        return f"absent from the {popularity['items']:,} items of train"
    return f"rank {popularity['place']:,} of {popularity['items']:,} items of train"


def _draw_recommended(to: Console, result: Mapping[str, Any]) -> None:
    counts = [(system, f"{count:,}") for system, count in result["systems"].items()]
    sampled = ", among sampled candidates" if result["sampled"] else ""
    title = f"in the top {result['k']} of {result['users_ranked']:,} users of {result['split']}{sampled}"
    table(to, f"recommended {title}", ("by", "users"), counts)
    users = [(_plain(one["user"]), f"{one['place']:,}", _MARK if one["hit"] else "") for one in result["users"]]
    table(to, "users of the model's recommendations, best rank first", ("user", "rank", "hit"), users)


def _heads(to: Console) -> tuple[str, ...]:
    return ("item", "title", "features") if to.width >= _WIDE else ("title",)


def _title(to: Console, item: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of an item; in a narrow terminal its title, or else its id."""
    title, own = _plain(item["title"] or ""), _plain(item["item"])
    features = _plain("; ".join(", ".join(values) for values in item["features"].values() if values))
    return (own, title, features) if to.width >= _WIDE else (title or own,)


def _features(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(_plain(name), _plain(", ".join(values))) for name, values in result["features"].items()]


def _counts(result: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    positive, mean = result["positive"], result["mean"]
    condition = f"{result['label']} 1" if mean is None else f"{result['label']} above {mean:.4g}, the mean of train"
    return [
        (split, f"{rows:,} rows, {positive[split] / rows:.0%} with {condition}" if rows else "0 rows")
        for split, rows in result["rows"].items()
    ]


def _plain(text: str) -> str:
    """Replace control characters: titles are untrusted."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
