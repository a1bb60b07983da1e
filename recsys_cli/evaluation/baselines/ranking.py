"""Which registered models every ranking is measured against, and within which limits."""

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
"""Multiplications that a baseline may cost: about ten seconds on two cores, and less than one on a GPU."""

WORTH_KEEPING = 0.2
"""Seconds of fitting from which a baseline is kept: popularity is counted sooner than read."""


def _as_it_is(_: Schema) -> dict[str, Any]:
    return {}


def _within_limits(schema: Schema) -> dict[str, Any]:
    """Return how many items EASE may know: users times their square stay within `WORK`, and memory within its budget."""
    num_users = max(1, len(schema.only(Role.USER).own_ids))
    budget = Config().memory_mib << 20
    return {"max_items": min(max(1, math.isqrt(int(WORK / num_users))), most_items(num_users, budget))}


RANKING: dict[str, Callable[[Schema], dict[str, Any]]] = {
    "popularity": _as_it_is,
    "ease": _within_limits,
}
"""By name in the registry, in the order of tables: the options that it has beside a model."""


def fit_baseline(
    name: str,
    schema: Schema,
    known: TrainingContext,
    history: TrainingContext,
    *,
    device: torch.device | str,
    cache: FittedCache | None = None,
) -> Model:
    """Return a baseline that has learnt from the rows that models learn from, and knows what they know.

    Args:
        name: One of `RANKING`.
        schema: The prepared columns.
        known: The rows of train.
        history: What users have met by now: train, or at a test valid too.
        device: Where it computes.
        cache: Where fitted models are kept; None fits anew.
    """
    options = RANKING[name](schema)
    model = build(name, options, schema).to(device)
    with torch.no_grad():
        _fit(model.eval(), name, options, known, cache)
        model.set_context(history)
    return model


def _fit(model: Model, name: str, options: dict[str, Any], known: TrainingContext, cache: FittedCache | None) -> None:
    file = cache.path(name, options, known.interactions()) if cache is not None else None
    if cache is not None and file is not None and cache.load(model, file):
        return
    started = time.perf_counter()
    model.fit(known)
    if cache is not None and file is not None and time.perf_counter() - started >= WORTH_KEEPING:
        cache.save(model, file)
