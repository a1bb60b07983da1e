"""What `recsys inspect` found of a user or an item, as tables that fit a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from recsys_cli.cli.tables import facts, line, table
from recsys_cli.page import day

if TYPE_CHECKING:
    from rich.console import Console

_MARK = "*"
_WIDE = 72
"""Columns of a terminal from which there is room for what an item is beside its title."""


def draw_user(to: Console, found: Mapping[str, Any]) -> None:
    """Show a user: the counts, what was met, what is recommended."""
    facts(to, [("user", _plain(found["user"])), *_features(found), *_counts(found), ("run", found["run"])])
    to.print()
    history, recommended = found["history"], found["recommended"]
    met = [(*_title(to, one), "" if one["time"] is None else day(one["time"]), f"{one['label']:g}") for one in history]
    table(to, "met before, the newest first", (*_heads(to), "time", found["label"]), met, text=len(_heads(to)))
    best = [(*_title(to, one), f"{one['score']:.4f}", _MARK if one["hit"] else "") for one in recommended]
    table(to, "recommended, the best first", (*_heads(to), "score", "hit"), best, text=len(_heads(to)))
    if recommended and found["split"]:
        hits = sum(one["hit"] for one in recommended)
        line(to, f"{_MARK} {hits} of the {found['to_find']} that should be found in {found['split']}", style="dim")
    _notes(to, found)


def draw_item(to: Console, found: Mapping[str, Any]) -> None:
    """Show an item: what it is, the counts, whom it is recommended to, what is near it."""
    facts(
        to,
        [
            ("item", _plain(found["item"])),
            ("title", _plain(found["title"] or "")),
            *_features(found),
            *_counts(found),
            ("popularity", _popularity(found["popularity"])),
            ("run", found["run"]),
        ],
    )
    to.print()
    if found["recommended"]:
        _draw_recommended(to, found["recommended"])
    near = [(*_title(to, one), f"{one['cosine']:.4f}") for one in found["nearest"]]
    table(to, "nearest items", (*_heads(to), "cosine"), near, text=len(_heads(to)))
    _notes(to, found)


def _popularity(place: Mapping[str, Any]) -> str:
    if place["place"] is None:
        return f"none of the {place['items']:,} items of train"
    return f"place {place['place']:,} of the {place['items']:,} items of train"


def _draw_recommended(to: Console, found: Mapping[str, Any]) -> None:
    counts = [(system, f"{count:,}") for system, count in found["systems"].items()]
    drawn = ", among items that were drawn" if found["sampled"] else ""
    what = f"in the first {found['k']} places of {found['users_ranked']:,} users of {found['split']}{drawn}"
    table(to, f"recommended {what}", ("by", "users"), counts)
    users = [(_plain(one["user"]), f"{one['place']:,}", _MARK if one["hit"] else "") for one in found["users"]]
    table(to, "to these by the model, the best places first", ("user", "place", "hit"), users)


def _heads(to: Console) -> tuple[str, ...]:
    return ("item", "title", "what") if to.width >= _WIDE else ("title",)


def _title(to: Console, item: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells for an item; in a narrow terminal one, and the id where there is no title."""
    title, own = _plain(item["title"] or ""), _plain(item["item"])
    what = _plain("; ".join(", ".join(values) for values in item["features"].values() if values))
    return (own, title, what) if to.width >= _WIDE else (title or own,)


def _features(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(_plain(name), _plain(", ".join(values))) for name, values in found["features"].items()]


def _counts(found: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    """Write the rows of each split, and how many of them are for the item."""
    positive, mean = found["positive"], found["mean"]
    liked = f"{found['label']} 1" if mean is None else f"{found['label']} above {mean:.4g}, the mean of train"
    return [
        (split, f"{rows:,} rows, {positive[split] / rows:.0%} with {liked}" if rows else "0 rows")
        for split, rows in found["rows"].items()
    ]


def _notes(to: Console, found: Mapping[str, Any]) -> None:
    for note in found["notes"]:
        line(to, f"note: {note}", style="yellow")


def _plain(text: str) -> str:
    """Keep letters that move a terminal's cursor or change its colours out of it: a title is what somebody typed once."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
