"""`recsys recommend`: recommendations of a run or a bundle for one request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recsys_cli.errors import ConfigError
from recsys_cli.serving.bundle import read_bundle
from recsys_cli.serving.query import Answer, CatalogItem, Query
from recsys_cli.serving.recommender import Recommender
from recsys_cli.stages.export import served_run
from recsys_cli.workspace import Bundle, TrainedRun, Workspace


def open_recommender(source: TrainedRun | Bundle, workspace: Workspace) -> Recommender:
    """Load a run or a bundle."""
    served = read_bundle(source) if isinstance(source, Bundle) else served_run(source, workspace)
    return Recommender(served)


def recommend(recommender: Recommender, query: Query) -> dict[str, Any]:
    """Return an answer as JSON values."""
    (answer,) = recommender.recommend([query])
    return {"user": query.user, "k": query.k, **_answer(recommender, answer)}


def similar(recommender: Recommender, name: str, *, k: int) -> dict[str, Any]:
    """Return the nearest items of an item, by its id or a part of its title.

    Raises:
        ConfigError: No item matches; the message has similar ones.
    """
    place = int(recommender.catalog.places_of([name])[0])
    if place >= 0:
        item = recommender.catalog.item(place)
    elif not name.isdecimal() and (found := recommender.search(name, 2)):
        item = found[0]
        if len(found) > 1 and (found[0].title or "").casefold() != name.casefold():
            titles = "; ".join(f"{one.id} ({one.title})" for one in recommender.search(name, 5))
            raise ConfigError(f"several items match {name!r}: {titles}", hint="name one by its id")
    else:
        raise ConfigError(f"unknown item {name!r}", hint=f"use a value of {recommender.served.item.name}, or a title")
    return {"item": _item(item), "k": k, **_answer(recommender, recommender.similar(item.id, k))}


def _answer(recommender: Recommender, answer: Answer) -> dict[str, Any]:
    return {
        "model": recommender.served.source.name,
        "by": recommender.served.called,
        "source": answer.source,
        "num_seen": answer.num_seen,
        "note": answer.note,
        "items": [
            {"rank": rank, **_item(one.item), "score": one.score, "because": list(one.because)}
            for rank, one in enumerate(answer.items, start=1)
        ],
    }


def _item(item: CatalogItem) -> Mapping[str, Any]:
    return {"item": item.id, "title": item.title, "features": {n: list(v) for n, v in item.features.items()}}
