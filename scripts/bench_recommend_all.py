"""Time of top-k for all users beside the ranking of the evaluation, of one query, and of a bundle's load.

usage: bench_recommend_all.py [--users 4000] [--items 60000] [--rounds 3] [--table-mb 500]

The data is planted: vectors of width 64 without training (mf), and EASE weights of fewer items. The ranking of `evaluate` and
the blocks of `recommend --all` take turns in one process, by CPU time; the load of a bundle with large tables comes last. The
result goes to scripts/results/recommend_all.json.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from measure import keep, machine, spread

from recsys_cli.evaluation.held_out import by_train_rows, for_users
from recsys_cli.evaluation.ranking import rank
from recsys_cli.evaluation.scorers import ModelScorer
from recsys_cli.features.schema import FIRST
from recsys_cli.interactions import Interactions
from recsys_cli.loader import DimensionTables
from recsys_cli.models import build
from recsys_cli.models.model import TrainingContext
from recsys_cli.ops import Categorify, LambdaOp
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.plan import FeaturePlan
from recsys_cli.serving.bundle import load_bundle
from recsys_cli.serving.bundle_writer import write_bundle
from recsys_cli.serving.every_user import recommend_to_all
from recsys_cli.serving.histories import Histories
from recsys_cli.serving.ids import IdIndex
from recsys_cli.serving.query import Query
from recsys_cli.serving.recommender import Recommender
from recsys_cli.serving.served import ModelSource, ServedModel
from recsys_cli.workspace import PreparedData, write_manifest

PER_USER, DIM, K = 100, 64, 10


def main() -> None:
    """Measure in turn and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=4_000)
    parser.add_argument("--items", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--table-mb", type=int, default=500)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, object] = {"machine": machine("torch"), "users": given.users, "items": given.items}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, options in (
            ("mf", {"embedding_dim": DIM}),
            ("sasrec", {"embedding_dim": DIM}),
            ("ials", {"embedding_dim": DIM}),
        ):
            served = planted(root / name, name, options, num_users=given.users, num_items=given.items)
            found[name] = _ranked(served, rounds=given.rounds)
        big = planted(
            root / "big",
            "mf",
            {"embedding_dim": DIM},
            num_users=given.table_mb * 1_000_000 // (4 * DIM),
            num_items=given.items,
        )
        (root / "bundle").mkdir()
        write_bundle(big, root / "bundle", key="bench", source={"run": {"name": "bench", "key": "bench"}})
        found["load of a bundle and first answer, CPU seconds"] = spread(
            [_seconds(lambda: load_bundle(root / "bundle").recommend([Query(user=1)])) for _ in range(given.rounds)]
        )
        found["MB of weights"] = round((root / "bundle" / "weights.safetensors").stat().st_size / 1e6)
    keep("recommend_all", found)


def planted(folder: Path, name: str, options: dict[str, int], *, num_users: int, num_items: int) -> ServedModel:
    """Return a model without training, with random histories; items are popular by their rank."""
    rng = np.random.default_rng(0)
    data, rows = PreparedData(folder), min(num_users, 20_000) * PER_USER
    folder.mkdir(parents=True)
    plan = FeaturePlan(user="userId", item="movieId", label="label", timestamp="timestamp", ops=(
        Categorify(columns=("userId", "movieId")), LambdaOp(expression="rating > 3", output="label", dtype="int8"),
    ))  # fmt: skip
    inputs = {"interactions": pa.schema([
        ("userId", pa.int32()), ("movieId", pa.int32()), ("rating", pa.float32()), ("timestamp", pa.int64()),
    ])}  # fmt: skip
    rest = pa.table({"null": np.zeros(1, np.int64), "unseen": np.zeros(1, np.int64)})
    state = {}
    for column, size in (("userId", num_users), ("movieId", num_items)):
        table = pa.table({"value": np.arange(size, dtype=np.int32), "count": np.ones(size, np.int64)})
        for state_name in plan.ops[0].states:
            if state_name.startswith(column):
                state[0, state_name] = table if state_name == column else rest
    fitted = FittedPlan(plan, inputs, state)
    fitted.write(folder)
    fitted.schema("star").write(folder / "schema.json")
    write_manifest(folder, "PreparedData", {"key": "bench", "rows": {}})
    users = np.repeat(np.arange(FIRST, FIRST + rows // PER_USER, dtype=np.int32), PER_USER)
    items = (FIRST + num_items * rng.random(rows) ** 2).astype(np.int32)
    history = Interactions(users, items, np.ones(rows, np.float32), times=np.arange(rows))
    model = build(name, options, data.schema)
    if name == "ials":
        model.items.normal_()
    counts = np.bincount(items, minlength=FIRST + num_items)
    counts[FIRST:] += 1
    indexes = [
        IdIndex.of(pa.array(np.arange(size, dtype=np.int32)), num_train=size, cardinality=FIRST + size)
        for size in (num_users, num_items)
    ]
    histories = Histories.of(history, num_users=FIRST + num_users)
    return ServedModel(
        name, ModelSource(name, options, "device", 65_536), model.eval(), data, *indexes, counts, histories, True, None
    )


def _ranked(served: ServedModel, *, rounds: int) -> dict[str, object]:
    """Return the ratio to the ranking of an evaluation, and the time of one query."""
    history = served.histories.interactions()
    users, candidates = np.unique(history.user_idx).astype(np.int64), by_train_rows(served.counts)
    evaluated = build(served.source.name, dict(served.source.options), served.schema).eval()
    evaluated.load_state_dict(served.model.state_dict())
    recommender = Recommender(served)
    seconds: dict[str, list[float]] = {
        "evaluate": [],
        "recommend --all": [],
        "one user, ms": [],
        "fold-in of one user, ms": [],
    }

    def ranking() -> None:
        evaluated.set_context(TrainingContext(lambda: history, dict))
        tables = DimensionTables(served.data)
        scorer = ModelScorer(evaluated, tables, served.schema, torch.from_numpy(candidates), batch_size=65_536)
        rank(for_users(users, history, candidates=candidates), scorer, cut_off=K)

    items = [int(item) - FIRST for item in history.item_idx[:PER_USER]]
    for _ in range(rounds):
        seconds["evaluate"].append(_seconds(ranking))
        seconds["recommend --all"].append(_seconds(lambda: list(recommend_to_all(recommender, users, k=K))))
        for name, query in (("one user, ms", Query(user=1)), ("fold-in of one user, ms", Query(history=items))):
            recommender.recommend([query])
            seconds[name] += [1_000 * _seconds(lambda query=query: recommender.recommend([query])) for _ in range(20)]
    return {
        "recommend --all / evaluate": round(min(seconds["recommend --all"]) / min(seconds["evaluate"]), 3),
        "CPU seconds": {name: spread(values) for name, values in seconds.items()},
    }


def _seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


if __name__ == "__main__":
    main()
