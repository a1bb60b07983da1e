"""Seconds to rank a whole catalogue with the recipe's network: the scorer of the evaluation, and the floor beneath it.

usage: bench_ranking.py [--items 56000] [--users 64] [--rounds 3]

A network of MovieLens-25M's sizes (512, 512, 16; 128-128-128) with random weights ranks all items for one block of users. The
floor is its dense layers after the first, on as many rows, which any way of asking it for every pair has to pay. One process,
the two in turn. The result goes to scripts/results/ranking.json, also scaled to the 2,000 users of the default config.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from measure import keep, machine, spread

from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.held_out import candidate_items, hold_out
from recsys_cli.evaluation.ranking import ModelScorer, rank
from recsys_cli.features.schema import FIRST, Column, Kind, Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.loader import DimensionTables
from recsys_cli.models import build
from recsys_cli.workspace import PreparedData

USERS, GENRES, DEFAULT_USERS = 162_541, 20, 2_000
BATCH = EvaluateConfig().batch_size


def main() -> None:
    """Measure in turn and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=56_000)
    parser.add_argument("--users", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ranking, floor = _subjects(PreparedData(Path(folder)), num_items=given.items, num_users=given.users)
    found: dict[str, list[float]] = {"ranking": [], "floor": []}
    for _ in range(given.rounds):
        found["ranking"].append(_seconds(ranking))
        found["floor"].append(_seconds(floor))
    best = {name: min(seconds) for name, seconds in found.items()}
    keep(
        "ranking",
        {
            "machine": machine("torch"),
            "pairs": given.items * given.users,
            "seconds (min / median / max)": {name: spread(seconds) for name, seconds in found.items()},
            "times the floor": round(best["ranking"] / best["floor"], 2),
            f"minutes for {DEFAULT_USERS} users": round(best["ranking"] / given.users * DEFAULT_USERS / 60, 2),
        },
    )


def _subjects(
    data: PreparedData, *, num_items: int, num_users: int
) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return what ranks, and what only computes the dense layers after the first for as many pairs."""
    schema = _write(data, num_items)
    model = build("mlp", {"embedding_dim": {"userId": 512, "movieId": 512, "genres": 16}}, schema).eval()
    everything = np.arange(FIRST, num_items + FIRST, dtype=np.int32)
    train = Interactions(np.full(num_items, FIRST, np.int32), everything, np.ones(num_items, np.float32))
    users = np.arange(FIRST + 1, FIRST + 1 + num_users, dtype=np.int32)
    rows = Interactions(users, everything[: len(users)], np.ones(len(users), np.float32))
    size = num_items + FIRST
    candidates = candidate_items(train, num_items=size)
    held_out = hold_out(rows, train, candidates=candidates, num_items=size, config=EvaluateConfig())
    scorer = ModelScorer(model, DimensionTables(data), schema, torch.from_numpy(candidates), batch_size=BATCH)
    hidden = torch.randn(BATCH, 128)

    def floor() -> None:
        with torch.inference_mode():
            for _ in range(-(-num_items * num_users // BATCH)):
                model.tower.rest(hidden)

    return lambda: rank(held_out, scorer, cut_off=50), floor


def _write(data: PreparedData, num_items: int) -> Schema:
    """Write what the tables need: the schema, and one to three genres for each item."""

    def ids(name: str, role: Role, rows: int, *, table: str | None = None) -> Column:
        return Column(
            name=name, role=role, kind=Kind.CATEGORICAL, dtype="int32", cardinality=rows + FIRST, vocabulary=name,
            ragged=table is not None, table=table,
        )  # fmt: skip

    label = Column(name="label", role=Role.LABEL, kind=Kind.NUMERIC, dtype="int8")
    user, item = ids("userId", Role.USER, USERS), ids("movieId", Role.ITEM, num_items)
    schema = Schema(columns=(user, item, label, ids("genres", Role.FEATURE, GENRES, table="movieId")))
    schema.write(data.folder / "schema.json")
    rng = np.random.default_rng(0)
    genres = [rng.integers(FIRST, GENRES + FIRST, rng.integers(1, 4)) for _ in range(num_items + FIRST)]
    data.table("movieId").parent.mkdir()
    pq.write_table(pa.table({"genres": pa.array(genres, pa.list_(pa.int32()))}), data.table("movieId"))
    return schema


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
