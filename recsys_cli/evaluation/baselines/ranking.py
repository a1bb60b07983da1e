"""Ranking baselines from the model registry, and their limits."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from recsys_cli.evaluation.baselines.cache import FittedCache
from recsys_cli.features.schema import Role, Schema
from recsys_cli.models import build
from recsys_cli.models.ease.config import affordable_items
from recsys_cli.models.model import Model, TrainingContext

WORTH_KEEPING = 0.2
"""Minimum fitting time in seconds for the cache: popularity is counted faster than read."""


def _within_limits(schema: Schema) -> dict[str, Any]:
    return {"max_items": affordable_items(len(schema.only(Role.USER).own_ids))}


RANKING: dict[str, Callable[[Schema], dict[str, Any]]] = {"popularity": lambda _: {}, "ease": _within_limits}
"""Options of each baseline by registry name, in table order."""


def fit_baseline(
    name: str,
    schema: Schema,
    train: TrainingContext,
    history: TrainingContext,
    *,
    device: torch.device | str,
    cache: FittedCache | None = None,
) -> Model:
    """Return a baseline of `RANKING` fitted on train, with the context of the ranking; None as cache always fits."""
    options = RANKING[name](schema)
    model = build(name, options, schema).to(device)
    with torch.no_grad():
        _fit(model.eval(), name, options, train, cache)
        model.set_context(history)
    return model


def _fit(model: Model, name: str, options: dict[str, Any], train: TrainingContext, cache: FittedCache | None) -> None:
    file = cache.path(name, options, train.interactions()) if cache is not None else None
    if cache is not None and file is not None and cache.load(model, file):
        return
    started = time.perf_counter()
    model.fit(train)
    if cache is not None and file is not None and time.perf_counter() - started >= WORTH_KEEPING:
        cache.save(model, file)
