"""Memory and time of a training step on jagged histories: a batch of 32 users, 2 with L items and 30 with 10.

usage: bench_long_sequences.py [--models sasrec hstu] [--lengths 50 200 500 1000 2000] [--package FOLDER] [--rounds 3] [--all-long]

Each figure is of a process of its own with one thread: the peak of its memory above that before the first step, and the median
processor seconds of a step. `--package` is a checkout of another version, whose runs take turns with those of this one.
`--all-long` gives all 32 users L items. Results: scripts/results/long_sequences.json.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
USERS, ITEMS, SHORT, LONG_USERS, STEPS = 32, 3_000, 10, 2, 4


def main() -> None:
    """Measure each length in turn, in processes of their own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["sasrec", "hstu"])
    parser.add_argument("--lengths", nargs="+", type=int, default=[50, 200, 500, 1000, 2000])
    parser.add_argument("--package", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--all-long", action="store_true")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        name, length, long_users = given.one
        print(json.dumps(measured(name, int(length), int(long_users))))
        return
    from measure import keep, machine

    packages = {"this": HERE, **({"other": given.package} if given.package else {})}
    rows = []
    for name in given.models:
        for length in given.lengths:
            long_users = USERS if given.all_long else LONG_USERS
            found: dict[str, list[Any]] = {label: [] for label in packages}
            for _ in range(given.rounds):
                for label, package in packages.items():
                    found[label].append(_in_a_process(package, name, str(length), str(long_users)))
            row = {
                "model": name,
                "length": length,
                "long_users": long_users,
                **{k: _medians(v) for k, v in found.items()},
            }
            print(row, flush=True)
            rows.append(row)
    label = "long_sequences_all" if given.all_long else "long_sequences"
    keep(label, {"rows": rows, "machine": machine("torch")})


def _in_a_process(package: Path, *arguments: str) -> Any:
    environment = os.environ | {"PYTHONPATH": str(package), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", __file__, "--one", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else {"mib": None, "seconds": None}


def _medians(runs: list[dict[str, float | None]]) -> dict[str, float | None]:
    """Return the medians; None if a process ended early, as out of memory."""
    columns = {key: [run[key] for run in runs] for key in runs[0]}
    return {key: None if None in values else statistics.median(values) for key, values in columns.items()}  # type: ignore[type-var]


def measured(name: str, length: int, long_users: int) -> dict[str, float]:
    """Return the memory and time of a step."""
    import numpy as np
    import torch

    from recsys_cli.batch import Batch
    from recsys_cli.config import TrainConfig
    from recsys_cli.config.schedule import TrainingPosition
    from recsys_cli.features.schema import FIRST, Column, Kind, Role, Schema
    from recsys_cli.interactions import Interactions
    from recsys_cli.models import build
    from recsys_cli.models.model import TrainingContext
    from recsys_cli.training.distributed.ranks import Ranks
    from recsys_cli.training.step import Step

    torch.manual_seed(0)
    draw = np.random.default_rng(0)
    counts = np.full(USERS, SHORT + 1)
    counts[:long_users] = length + 1  # the last item is a target only
    users = np.repeat(np.arange(FIRST, USERS + FIRST), counts).astype(np.int32)
    items = draw.integers(FIRST, ITEMS + FIRST, len(users)).astype(np.int32)
    times = 1_000_000_000 + draw.exponential(10_000, len(users)).cumsum().astype(np.int64)
    rows = Interactions(users, items, np.ones(len(users), np.float32), times=times)
    categorical: dict[str, Any] = {"kind": Kind.CATEGORICAL, "dtype": "int32", "vocabulary": "v"}
    schema = Schema(
        columns=(
            Column(name="user", role=Role.USER, cardinality=USERS + FIRST, **categorical),
            Column(name="item", role=Role.ITEM, cardinality=ITEMS + FIRST, **categorical),
            Column(name="label", role=Role.LABEL, kind=Kind.NUMERIC, dtype="int8"),
            Column(name="time", role=Role.TIMESTAMP, kind=Kind.NUMERIC, dtype="int64"),
        )
    )
    model: Any = build(name, {"max_seq_len": length}, schema, sparse=True)
    model.set_context(TrainingContext(lambda: rows, dict))
    config = TrainConfig(batch_size=USERS, precision="fp32", device="cpu", sparse_embeddings=True)
    step = Step(model.train(), config, Ranks())
    batch = Batch({"user": torch.arange(FIRST, USERS + FIRST).int()}, {"label": torch.ones(USERS)})
    before, seconds = _peak(), []
    for number in range(STEPS):
        start = time.process_time()
        step(batch, TrainingPosition(number, STEPS, 1, []))
        seconds.append(time.process_time() - start)
    return {"mib": round(_peak() - before, 1), "seconds": round(statistics.median(seconds[1:]), 4)}


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
