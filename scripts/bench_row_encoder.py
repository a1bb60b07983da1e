"""Time of one raw row of the MovieLens-25M recipe: the row encoder beside the transform of one row by each engine.

Both sides run in turn on the same rows, and the figures are ratios of CPU times, so that other load cancels out.

    python scripts/bench_row_encoder.py --calls 200 --rounds 5 [--engine nvtabular polars] [--users 162541 --items 59047]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from recsys_cli.etl.engine import Engine
from recsys_cli.etl.transform import prepare
from recsys_cli.features.columns import REST
from recsys_cli.ops import Categorify, JoinExternal, LambdaOp
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.plan import FeaturePlan
from recsys_cli.registry import ENGINES, load
from recsys_cli.serving.encoder import RowEncoder

GENRES = 20


def ml25m(users: int, items: int) -> FittedPlan:
    """Return a fitted plan of the recipe, with vocabularies of the size of MovieLens 25M."""
    plan = FeaturePlan(
        user="userId", item="movieId", label="label", timestamp="timestamp",
        ops=(
            JoinExternal(table="movies", on="movieId", columns=("genres",)),
            Categorify(columns=("userId", "movieId", "genres")),
            LambdaOp(expression="hour(timestamp)", output="hour", dtype="int8"),
            LambdaOp(expression="rating > 3", output="label", dtype="int8"),
        ),
    )  # fmt: skip
    inputs = {
        "interactions": pa.schema({
            "userId": pa.int32(), "movieId": pa.int32(), "rating": pa.float32(), "timestamp": pa.int64()
        }),
        "movies": pa.schema({"movieId": pa.int32(), "genres": pa.list_(pa.string())}),
    }  # fmt: skip
    rng = np.random.default_rng(0)
    values = {
        "userId": rng.permutation(users).astype(np.int32),
        "movieId": rng.permutation(items * 3)[:items].astype(np.int32),
        "genres": pa.array([f"genre {number}" for number in range(GENRES)]),
    }
    rest = pa.table({"null": pa.array([0], pa.int64()), "unseen": pa.array([0], pa.int64())})
    state = {(1, name): pa.table({"value": v, "count": np.ones(len(v), np.int64)}) for name, v in values.items()}
    return FittedPlan(plan, inputs, state | {(1, name + REST): rest for name in values})


def cpu_time(call: Callable[[int], object], calls: int) -> float:
    """Return the CPU seconds of one call, the median of several."""
    times = []
    for number in range(calls):
        start = time.process_time_ns()
        call(number)
        times.append(time.process_time_ns() - start)
    return statistics.median(times) / 1e9


def main() -> None:
    """Print the ratios and the time of one row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--calls", type=int, default=200, help="calls of the encoder per round; engines make a tenth")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engine", nargs="+", default=["nvtabular", "polars"], choices=sorted(ENGINES))
    parser.add_argument("--users", type=int, default=162_541)
    parser.add_argument("--items", type=int, default=59_047)
    options = parser.parse_args()
    fitted = ml25m(options.users, options.items)
    schema = fitted.schema("star")
    encoder = RowEncoder(fitted, schema)
    rng = np.random.default_rng(1)
    rows = [
        {"userId": int(user), "movieId": int(item), "rating": 4.0, "timestamp": 1_500_000_000 + int(user)}
        for user, item in rng.integers(0, options.items, (options.calls * (options.rounds + 1), 2))
    ]
    requests = [{name: [value] for name, value in row.items()} for row in rows]
    tables = [pa.Table.from_pylist([row], fitted.inputs["interactions"]) for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        for name in options.engine:
            engine: Engine = load(ENGINES[name])(Path(folder))
            _compare(name, lambda number: prepare(engine, fitted, tables[number], schema),  # noqa: B023 - used within the turn
                     encoder, requests, options)  # fmt: skip


def _compare(
    name: str,
    transform: Callable[[int], object],
    encoder: RowEncoder,
    requests: list[dict[str, list[float]]],
    options: argparse.Namespace,
) -> None:
    transform(0)
    ratios, ours = [], []
    for round_number in range(1, options.rounds + 1):
        first = round_number * options.calls  # other rows in each round: values are looked up, not remembered
        theirs = cpu_time(lambda number, at=first: transform(at + number), max(3, options.calls // 10))  # type: ignore[misc]
        ours.append(cpu_time(lambda number, at=first: encoder.encode(requests[at + number]), options.calls))  # type: ignore[misc]
        ratios.append(theirs / ours[-1])
    ratios.sort()
    low, middle, high = ratios[0], statistics.median(ratios), ratios[-1]
    print(
        f"{name}: {low:.0f} / {middle:.0f} / {high:.0f} times the row encoder (min / median / max of {len(ratios)} rounds)"
    )
    print(f"  one row in {statistics.median(ours) * 1e6:.0f} µs of CPU time")


if __name__ == "__main__":
    main()
