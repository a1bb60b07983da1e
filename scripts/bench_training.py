"""Seconds per training step of recsys, of plain torch, and of the Merlin notebook's loop, in turn, each as a process of its own.

usage: bench_training.py PREPARED [PEER_DATA] [--peer ../shared/baselines/merlin_train.py] [--rounds 3] [--steps 12]

PREPARED is a folder that `recsys etl` wrote (workspace/data/<key>), PEER_DATA what nvtabular_etl.py wrote, of the same raw
rows. All train the notebook's network (512, 512 and 16 dims; 128-128-128; batch 32,768), their loaders included. The first
step of each process is not counted. Ours is timed with each optimizer of sparse tables, and with `false`, Adam over whole
tables as the peers'. The result goes to scripts/results/training.json.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from measure import keep, machine, run, spread

BATCH = 32_768
HERE = Path(__file__).resolve().parent
MERLIN = HERE.parents[1] / "shared" / "baselines" / "merlin_train.py"
OURS = {
    "sparse adam": {"sparse_embeddings": True},
    "sparse adagrad": {"sparse_embeddings": True, "embedding_optimizer": "adagrad"},
    "sparse sgd": {"sparse_embeddings": True, "embedding_optimizer": "sgd"},
    "dense adam": {},
}
NOTEBOOK = {"embedding_dim": None, "dropout": 0.0, "embedding_dropout": 0.0}
"""What makes `mlp` the notebook's network."""
PEERS = ("plain torch", "merlin")


def work(folder: Path, steps: int, options: dict[str, Any]) -> dict[str, Any]:
    """Train for some steps in this process; return the seconds of one, the first not counted."""
    import torch

    from recsys_cli.config import TrainConfig
    from recsys_cli.loader import Loader
    from recsys_cli.models import build
    from recsys_cli.training.data import TrainingData
    from recsys_cli.training.hardware import keep_freed_memory
    from recsys_cli.training.objective import Objective
    from recsys_cli.training.progress import Stepped
    from recsys_cli.training.trainer import Trainer
    from recsys_cli.workspace import PreparedData

    data = PreparedData(folder)
    keep_freed_memory()
    torch.manual_seed(42)
    config = TrainConfig(batch_size=BATCH, device="cpu", **options)
    model = build("mlp", NOTEBOOK, data.schema, sparse=config.sparse_embeddings)
    loader = Loader(data, "train", batch_size=BATCH, shuffle=True)
    trainer = Trainer(model, TrainingData(loader), config, objective=Objective(label="label"))
    started = waited = 0.0
    for event in trainer.events():
        if not isinstance(event, Stepped):
            raise SystemExit(f"{folder} has fewer than {steps} steps of {BATCH} rows")
        if event.step == 1:
            started, waited = time.perf_counter(), event.waiting
        if event.step == steps:
            break
    seconds, waiting = time.perf_counter() - started, event.waiting - waited
    return {
        "seconds": seconds / (steps - 1),
        "waiting": waiting / (steps - 1),
        "precision": trainer.step.precision,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def measure_ours(folder: Path, steps: int, mode: str) -> dict[str, Any]:
    """Time recsys in a process of its own."""
    done = run([sys.executable, __file__, str(folder), "--steps", str(steps), "--worker", mode])
    return {**json.loads(done.output.splitlines()[-1]), "peak_gb": done.peak_gb}


def measure_peer(program: Path, folder: Path, steps: int) -> dict[str, Any]:
    """Time the peer in a process of its own."""
    done = run([sys.executable, str(program), str(folder), str(steps)])
    found = re.search(r"([\d.]+) s a step, of which ([\d.]+) s waiting", done.output)
    if found is None:
        raise SystemExit(f"{program} printed no time:\n{done.output[-2000:]}")
    return {"seconds": float(found[1]), "waiting": float(found[2]), "peak_gb": done.peak_gb}


def summary(rounds: list[dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """Say what each took, and each peer's time over ours, paired round by round."""
    found: dict[str, Any] = {}
    for name in rounds[0]:
        seconds = [one[name]["seconds"] for one in rounds]
        found[name] = {
            "seconds_per_step (min / median / max)": spread(seconds, 3),
            "rows_per_second": round(BATCH / statistics.median(seconds)),
            "seconds_waiting_per_step": round(statistics.median(one[name]["waiting"] for one in rounds), 4),
            "peak_gb": round(max(one[name]["peak_gb"] for one in rounds), 2),
        }
        for peer in PEERS:
            if name not in PEERS and peer in rounds[0]:
                ratios = [one[peer]["seconds"] / one[name]["seconds"] for one in rounds]
                found[name][f"times_faster_than_{peer.replace(' ', '_')} (min / median / max)"] = spread(ratios)
    return found


def main() -> None:
    """Run all in turn and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prepared", type=Path)
    parser.add_argument("peer_data", type=Path, nargs="?")
    parser.add_argument("--peer", type=Path, default=MERLIN, help="Merlin's program")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--worker", choices=list(OURS), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        print(json.dumps(work(given.prepared, given.steps, OURS[given.worker])))
        return
    where = machine("torch", "numpy")
    rounds: list[dict[str, dict[str, Any]]] = []
    for _ in range(given.rounds):
        one = {f"recsys, {mode}": measure_ours(given.prepared, given.steps, mode) for mode in OURS}
        one["plain torch"] = measure_peer(HERE / "torch_train.py", given.prepared, given.steps)
        if given.peer_data and given.peer.is_file():
            one["merlin"] = measure_peer(given.peer, given.peer_data, given.steps)
        rounds.append(one)
        print("  ".join(f"{name} {figures['seconds']:.3f} s" for name, figures in one.items()), flush=True)
    facts = {name: rounds[0]["recsys, sparse adam"][name] for name in ("precision", "threads")}
    keep(
        "training", {"batch_size": BATCH, "steps": given.steps, **facts, "programs": summary(rounds), "machine": where}
    )


if __name__ == "__main__":
    main()
