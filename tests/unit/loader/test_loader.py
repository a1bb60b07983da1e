"""What a loader hands out: every row once, in an order that (seed, epoch) decides, resident or streaming."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch

from recsys_cli.batch import Batch, Ragged
from recsys_cli.errors import ConfigError, DataError
from recsys_cli.loader import Loader
from recsys_cli.workspace import PreparedData

MakePrepared = Callable[..., PreparedData]


def rows_of(batches: list[Batch]) -> list[tuple[object, ...]]:
    """Every row as one tuple: its ids, its genres, its label."""
    found: list[tuple[object, ...]] = []
    for batch in batches:
        genres = batch.features["genres"]
        assert isinstance(genres, Ragged)
        ends = genres.offsets.tolist()
        lists = [tuple(genres.values[a:b].tolist()) for a, b in zip(ends, ends[1:], strict=False)]
        columns = [batch.features["userId"].tolist(), batch.features["movieId"].tolist(), batch.labels["label"].tolist()]
        found.extend(zip(*columns, lists, strict=True))
    return found


def test_loader_hands_out_every_row_once(make_prepared: MakePrepared) -> None:
    data = make_prepared(rows=1_001, shards=3)
    plain = rows_of(list(Loader(data, "train", batch_size=64)))
    shuffled = rows_of(list(Loader(data, "train", batch_size=64, shuffle=True)))
    assert len(plain) == 1_001
    assert sorted(plain) == sorted(shuffled)
    assert plain != shuffled
