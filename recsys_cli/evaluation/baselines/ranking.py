"""Ranking baselines from the model registry, and their limits."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch

from recsys_cli.evaluation.baselines.cache import FittedCache
from recsys_cli.features.schema import Role, Schema
from recsys_cli.models import build
from recsys_cli.models.ease.config import Config
from recsys_cli.models.ease.model import most_items
from recsys_cli.models.model import Model, TrainingContext

WORK = 5e11
"""Maximum multiplications of a baseline: about ten seconds on two cores, under one second on a GPU."""

WORTH_KEEPING = 0.2
"""Minimum fitting time in seconds for the cache: popularity is counted faster than read."""


def _within_limits(schema: Schema) -> dict[str, Any]:
    """Limit the items of EASE, users times items squared, to `WORK`, and its memory to its budget."""
    num_users = max(1, len(schema.only(Role.USER).own_ids))
    budget = Config().memory_mib << 20
    return {"max_items": min(max(1, math.isqrt(int(WORK / num_users))), most_items(num_users, budget))}


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
