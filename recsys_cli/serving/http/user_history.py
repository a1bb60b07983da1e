"""Lookups of users and items for the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from recsys_cli.serving.query import CatalogItem, RecentInteraction
from recsys_cli.serving.recommender import Recommender


def item_by_id(model: Recommender, item: Any) -> CatalogItem | None:
    """Return an item of the catalog by its raw id."""
    place = int(model.catalog.places_of([item])[0])
    return None if place < 0 else model.catalog.item(place)


def user_history(model: Recommender, user: Any, recent: Sequence[RecentInteraction], k: int) -> dict[str, Any]:
    """Return the latest k interactions of a user, newest first, as JSON values of `bodies.UserAnswer`."""
    served = model.served
    encoded = int(served.users.encode([user])[0])
    stored = served.histories.of_user(encoded)
    shown = [
        {"item": one.item, "title": _title(model, one.item), "label": one.label, "feedback": True}
        for one in reversed(recent[-k:])
    ]
    replaced = served.items.encode([one.item for one in recent])
    others = np.flatnonzero(~np.isin(stored.items, replaced))[::-1]
    rows = others[: k - len(shown)]
    items = served.items.decode(stored.items[rows].astype("int64")).to_pylist()
    shown += [
        {"item": item, "title": _title(model, item), "label": float(label), "feedback": False}
        for item, label in zip(items, stored.labels[rows], strict=True)
    ]
    return {"known": encoded >= 0, "num_interactions": len(others) + len(recent), "history": shown}


def _title(model: Recommender, item: Any) -> str | None:
    found = item_by_id(model, item)
    return None if found is None else found.title
