"""Memory of a training step of a sequence model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from recsys_cli.batch import Batch
from recsys_cli.features.schema import FIRST, Column, Kind, Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.models import build
from recsys_cli.models.model import TrainingContext

_ITEMS = 50


def step_memory(name: str, counts: Sequence[int], options: dict[str, Any]) -> int:
    """Return the peak of the bytes that the loss of users with so many items, and its backward pass, allocate."""
    users = np.repeat(np.arange(FIRST, len(counts) + FIRST), counts).astype(np.int32)
    items = (FIRST + np.arange(len(users)) % _ITEMS).astype(np.int32)
    rows = Interactions(users, items, np.ones(len(users), np.float32), times=np.arange(len(users)))
    categorical: dict[str, Any] = {"kind": Kind.CATEGORICAL, "dtype": "int32", "vocabulary": "v"}
    schema = Schema(
        columns=(
            Column(name="user", role=Role.USER, cardinality=len(counts) + FIRST, **categorical),
            Column(name="item", role=Role.ITEM, cardinality=_ITEMS + FIRST, **categorical),
            Column(name="label", role=Role.LABEL, kind=Kind.NUMERIC, dtype="int8"),
            Column(name="time", role=Role.TIMESTAMP, kind=Kind.NUMERIC, dtype="int64"),
        )
    )
    torch.manual_seed(0)
    model: Any = build(name, options, schema)
    model.set_context(TrainingContext(lambda: rows, dict))
    batch = Batch({"user": torch.arange(FIRST, len(counts) + FIRST).int()}, {"label": torch.ones(len(counts))})
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        model.loss(batch).backward()
    assert profiler.profiler is not None
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    changes = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    return int(np.cumsum(changes).max())
