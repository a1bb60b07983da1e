"""Answers as JSON."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.responses import Response

from recsys_cli.serving.http.fleet import Deployment
from recsys_cli.serving.query import Answer, CatalogItem, RecommendedItem

_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


def json_response(value: Any, status: int = 200) -> Response:
    """Return a JSON response; ids of other types, such as dates, become text."""
    return Response(orjson.dumps(value, default=str, option=_OPTIONS), status, media_type="application/json")


def recommendations(answer: Answer, deployment: Deployment, *, explain: bool) -> dict[str, Any]:
    """Return the JSON values of `bodies.Recommendations`."""
    return {
        "bundle": deployment.name,
        "version": deployment.version,
        "source": answer.source,
        "fallback": "popularity" if answer.source == "popularity" else None,
        "note": answer.note,
        "num_seen": answer.num_seen,
        "items": [_recommended(one, explain=explain) for one in answer.items],
    }


def _recommended(one: RecommendedItem, *, explain: bool) -> dict[str, Any]:
    values = {"item": one.item.id, "title": one.item.title, "score": one.score}
    if explain:
        values |= {"because": list(one.because), "features": _features(one.item)}
    return values


def catalog_item(item: CatalogItem, *, hidden: bool) -> dict[str, Any]:
    """Return the JSON values of `bodies.Item`."""
    return {"item": item.id, "title": item.title, "features": _features(item), "hidden": hidden}


def _features(item: CatalogItem) -> dict[str, list[str]]:
    return {name: [str(value) for value in values] for name, values in item.features.items()}
