"""Seconds per step where tables are large: sparse gradients beside dense ones, and our updates beside FBGEMM's own.

usage: bench_tables.py [--rounds 3] [--steps 6] [--skip-dense]

First the tables of NVIDIA's post on sparse embeddings (656,096 and 868,034 rows of 512; 67, 14 and 4 narrow rows), in the network
of the Merlin notebook, each optimizer as a process of its own, and dense Adam in plain torch: whole steps. What is dense needs 13
to 15 GB of memory. Then the two tables of MovieLens-25M (162,544 and 62,426 rows of 512) alone, looked up, given a gradient, and
updated: by our optimizers with and without FBGEMM's kernels, and by FBGEMM's table-batched embeddings, which do it in one. Batches
of 32,768 rows, of which 27,000 and 23,000 rows of the tables are different ones, about as in MovieLens-25M. The first two steps
are not counted. The result goes to scripts/results/tables.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from bench_training import NOTEBOOK
from measure import keep, machine, run, spread

BATCH = 32_768
POST = {"user_a": 656_096, "user_b": 868_034, "language": 67, "media": 14, "tweet_type": 4}
ALONE = {"user": 162_544, "film": 62_426}
PLAIN = "plain torch"
MODES: dict[str, dict[str, Any]] = {
    PLAIN: {},
    "dense adam": {},
    "sparse adam": {"sparse_embeddings": True},
    "sparse adagrad": {"sparse_embeddings": True, "embedding_optimizer": "adagrad"},
    "sparse sgd": {"sparse_embeddings": True, "embedding_optimizer": "sgd"},
}
UPDATES = ("adagrad", "adagrad without FBGEMM", "FBGEMM adagrad", "sgd", "sgd without FBGEMM", "FBGEMM sgd", "adam")


def batches(sizes: dict[str, int], number: int) -> list[Any]:
    """Draw batches of ids scattered over the table; a row's chance falls with the square root of its rank."""
    import torch

    from recsys_cli.batch import Batch

    draw = torch.Generator().manual_seed(0)
    ranks = {name: torch.randperm(size - 3, generator=draw) for name, size in sizes.items()}

    def ids(name: str, size: int) -> torch.Tensor:
        place = (size - 3) * torch.rand(BATCH, generator=draw, dtype=torch.float64).square()
        return ranks[name][place.long().clamp(max=size - 4)].int() + 3

    def one() -> Batch:
        label = torch.randint(0, 2, (BATCH,), generator=draw).float()
        return Batch({name: ids(name, size) for name, size in sizes.items()}, {"label": label})

    return [one() for _ in range(number)]


def columns(sizes: dict[str, int]) -> list[Any]:
    """Describe the columns as a prepared schema does."""
    from recsys_cli.features.schema import Column, Kind, Role

    return [
        Column(name=name, role=Role.FEATURE, kind=Kind.CATEGORICAL, dtype="int32", cardinality=size, vocabulary=name)
        for name, size in sizes.items()
    ]


def whole_steps(mode: str, number: int) -> list[float]:
    """Return the seconds of whole steps on the post's tables."""
    import torch

    from recsys_cli.config import TrainConfig
    from recsys_cli.config.schedule import TrainingPosition
    from recsys_cli.features.schema import Column, Kind, Role, Schema
    from recsys_cli.models import build
    from recsys_cli.training.allocator import keep_freed_memory
    from recsys_cli.training.distributed.ranks import Ranks
    from recsys_cli.training.step import Step

    keep_freed_memory()
    torch.manual_seed(0)
    label = Column(name="label", role=Role.LABEL, kind=Kind.NUMERIC, dtype="int8")
    config = TrainConfig(device="cpu", precision="fp32", **MODES[mode])
    schema, made = Schema(columns=(*columns(POST), label)), batches(POST, number + 2)
    if mode == PLAIN:
        take = plain_step(schema)
        return timed([lambda batch=batch: take(batch) for batch in made])
    step = Step(build("mlp", NOTEBOOK, schema, sparse=config.sparse_embeddings).train(), config, Ranks())
    return timed(
        [lambda batch=batch, at=at: step(batch, TrainingPosition(at, number + 2, 1)) for at, batch in enumerate(made)]
    )


def plain_step(schema: Any) -> Callable[[Any], None]:
    """Return a step of plain torch with dense gradients and its Adam, as torch_train.py takes it."""
    import torch
    from torch_train import Network

    network, loss_function = Network(schema), torch.nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)

    def step(batch: Any) -> None:
        loss = loss_function(network(batch), batch.labels["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def updates(mode: str, number: int) -> list[float]:
    """Return the seconds of lookups with their update on the tables of MovieLens-25M."""
    import torch

    from recsys_cli.models.embedding import Embeddings
    from recsys_cli.training.allocator import keep_freed_memory
    from recsys_cli.training.rows import RowAdagrad, RowAdam, RowSGD, fbgemm

    keep_freed_memory()
    torch.manual_seed(0)
    made = batches(ALONE, number + 2)
    towards = torch.randn(BATCH, 2 * 512)
    if mode.startswith("FBGEMM"):
        together = table_batched(mode)
        places = torch.arange(2 * BATCH + 1)
        flat = [torch.cat([batch.features[name].long() for name in ALONE]) for batch in made]
        return timed([lambda ids=ids: together(ids, places).backward(towards) for ids in flat])
    if mode.endswith("without FBGEMM"):
        fbgemm._kernel = lambda _: None  # type: ignore[assignment]
    tables = Embeddings(columns(ALONE), dict.fromkeys(ALONE, 512), sparse=True)
    rule = {"adam": RowAdam, "adagrad": RowAdagrad, "sgd": RowSGD}[mode.partition(" ")[0]]
    optimizer = rule(tables.parameters(), lr=0.01)

    def step(batch: Any) -> None:
        optimizer.zero_grad()
        found = tables.lookups(batch)
        # A model multiplies the used rows, so its gradient comes by rows; here it is drawn.
        for lookup in found.values():
            lookup.rows.backward(noise[: lookup.rows.shape[0]])
        optimizer.step()

    noise = torch.randn(BATCH, 512)
    return timed([lambda batch=batch: step(batch) for batch in made])


def table_batched(mode: str) -> Any:
    """Return FBGEMM's own module over the same tables, with its fused optimizer."""
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        EmbeddingLocation,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    kind = EmbOptimType.EXACT_ROWWISE_ADAGRAD if mode.endswith("adagrad") else EmbOptimType.EXACT_SGD
    shapes = [(size, 512, EmbeddingLocation.HOST, ComputeDevice.CPU) for size in ALONE.values()]
    module = SplitTableBatchedEmbeddingBagsCodegen(shapes, optimizer=kind, learning_rate=0.01, eps=1e-8)
    module.init_embedding_weights_uniform(-0.01, 0.01)
    return module


def timed(steps: list[Callable[[], Any]]) -> list[float]:
    """Take steps; return the seconds of each but the first two."""
    seconds = []
    for step in steps:
        started = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - started)
    return seconds[2:]


def in_turn(work: str, modes: tuple[str, ...], given: argparse.Namespace) -> dict[str, Any]:
    """Run each mode in a process of its own, round by round; say what a step took."""
    found: dict[str, list[dict[str, float]]] = {mode: [] for mode in modes}
    for _ in range(given.rounds):
        for mode in modes:
            done = run([sys.executable, __file__, "--steps", str(given.steps), "--worker", work, mode])
            seconds = json.loads(done.output.splitlines()[-1])
            found[mode].append({"seconds": statistics.median(seconds), "peak_gb": done.peak_gb})
        print(work, "  ".join(f"{mode} {runs[-1]['seconds']:.3f} s" for mode, runs in found.items()), flush=True)
    first = found[modes[0]]
    return {
        mode: {
            "seconds_per_step (min / median / max)": spread([one["seconds"] for one in runs], 3),
            f"times_faster_than_{modes[0].replace(' ', '_')} (min / median / max)": spread(
                [before["seconds"] / one["seconds"] for before, one in zip(first, runs, strict=True)]
            ),
            "peak_gb": round(max(one["peak_gb"] for one in runs), 2),
        }
        for mode, runs in found.items()
    }


def main() -> None:
    """Run both parts and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--skip-dense", action="store_true", help="leave out what needs 13 to 15 GB of memory")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work, mode = given.worker
        print(json.dumps({"steps": whole_steps, "updates": updates}[work](mode, given.steps)))
        return
    where = machine("torch", "numpy")
    modes = tuple(MODES)[2:] if given.skip_dense else tuple(MODES)
    parts = {"post": in_turn("steps", modes, given), "updates": in_turn("updates", UPDATES, given)}
    keep("tables", {"batch_size": BATCH, "steps": given.steps, **parts, "machine": where})


if __name__ == "__main__":
    main()
