"""Training on a checkerboard, where users like the items of their own half: its data, configs, and what runs have in common."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import load_file

from recsys_cli.config import RunConfig
from recsys_cli.ops import Categorify, JoinExternal, LambdaOp
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.plan import FeaturePlan
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace, write_manifest
from tests.rated import FEATURES
from tests.sealing import reseal
from tests.strategies import known_state

PLAN = FeaturePlan(
    user="userId",
    item="movieId",
    label="label",
    timestamp="timestamp",
    ops=(
        JoinExternal(table="movies", on="movieId", columns=("genres",)),
        Categorify(columns=("userId", "movieId", "genres")),
        LambdaOp(expression="rating > 3", output="label", dtype="int8"),
    ),
)

INPUTS = {
    "interactions": pa.schema([
        ("userId", pa.int32()), ("movieId", pa.int32()), ("rating", pa.float32()), ("timestamp", pa.int64()),
    ]),
    "movies": pa.schema([("movieId", pa.int32()), ("genres", pa.list_(pa.string()))]),
}  # fmt: skip


def write_prepared(folder: Path, *, users=40, items=30, rows=2_000, shards=2, seed=0) -> PreparedData:
    """Write prepared data by hand, without any ETL: a checkerboard, where users like the items of their own half.

    Users and items are encoded from 3 on. The label is 1 where user and item are both even or both odd. Genres of an
    item are [3] for odd and [4, 5] for even ids; ids 0, 1 and 2 have none.
    """
    rng = np.random.default_rng(seed)
    data = PreparedData(folder / f"prepared-{users}-{items}-{rows}-{shards}-{seed}")
    counts = {"train": rows, "valid": rows // 4}
    for split, num_rows in counts.items():
        (data.folder / split).mkdir(parents=True)
        user_idx = rng.integers(3, users + 3, num_rows).astype(np.int32)
        item_idx = rng.integers(3, items + 3, num_rows).astype(np.int32)
        table = pa.table({
            "userId": user_idx,
            "movieId": item_idx,
            "label": ((user_idx + item_idx) % 2 == 0).astype(np.int8),
            "timestamp": np.arange(num_rows, dtype=np.int64),
        })  # fmt: skip
        for shard, start in enumerate(range(0, num_rows, -(-num_rows // shards))):
            part = table.slice(start, -(-num_rows // shards))
            pq.write_table(part, data.folder / split / f"{shard:05d}.parquet")
    genres = [[]] * 3 + [[3] if item % 2 else [4, 5] for item in range(3, items + 3)]
    (data.folder / "tables").mkdir()
    pq.write_table(pa.table({"genres": pa.array(genres, pa.list_(pa.int32()))}), data.table("movieId"))
    vocabularies = {
        "userId": pa.table({"value": np.arange(users, dtype=np.int32), "count": np.ones(users, np.int64)}),
        "movieId": pa.table({"value": np.arange(items, dtype=np.int32), "count": np.ones(items, np.int64)}),
        "genres": pa.table({"value": ["Odd", "Even", "Both"], "count": np.ones(3, np.int64)}),
    }
    fitted = FittedPlan(PLAN, INPUTS, known_state(PLAN, vocabularies))
    fitted.write(data.folder)
    fitted.schema("star").write(data.folder / "schema.json")
    write_manifest(data.folder, "PreparedData", {"key": f"by-hand-{users}-{items}-{rows}-{seed}", "rows": counts})
    return data


def put_prepared(workspace: Workspace, **sizes: int) -> PreparedData:
    """`write_prepared` as data of a workspace."""
    workspace.root.mkdir(parents=True, exist_ok=True)
    made = write_prepared(workspace.root, **sizes)
    place = workspace.data(made.key)
    place.folder.parent.mkdir(exist_ok=True)
    made.folder.rename(place.folder)
    return place


MLP = {"name": "mlp", "embedding_dim": 8, "hidden_dims": [16], "dropout": 0.1}


def a_config(model: dict[str, Any] | None = None, **train: Any) -> RunConfig:
    """Return the config of a small model, by default an MLP that learns the board in two epochs."""
    defaults = {"epochs": 2, "batch_size": 256, "learning_rate": 0.05, "device": "cpu", "precision": "fp32"}
    return RunConfig.model_validate({
        "dataset": {"name": "synthetic-small"}, "features": FEATURES, "model": model or MLP, "train": {**defaults, **train},
    })  # fmt: skip


def lines_of(run: TrainedRun) -> list[dict[str, Any]]:
    """Return the lines of metrics.jsonl."""
    return [json.loads(line) for line in run.metrics.read_text().splitlines()]


def losses_of(run: TrainedRun) -> list[float]:
    """Return the loss of each step."""
    return [line["loss"] for line in lines_of(run) if line["event"] == "step"]


def same_weights(one: TrainedRun, other: TrainedRun, which: str = "last") -> bool:
    """Compare all tensors of two checkpoints (weights, optimizer states) bit for bit."""
    a, b = load_file(one.checkpoint(which)), load_file(other.checkpoint(which))
    return a.keys() == b.keys() and all(a[name].tobytes() == b[name].tobytes() for name in a)


def set_column(data: PreparedData, split: str, name: str, values: Any) -> None:
    """Replace a column in all shards of a split; `values` gets the number of the shard and of its rows."""
    for shard, path in enumerate(data.shards(split)):
        table = pq.read_table(path)
        column = pa.array(values(shard, table.num_rows)).cast(table.schema.field(name).type)
        pq.write_table(table.set_column(table.column_names.index(name), name, column), path)
    reseal(data)
