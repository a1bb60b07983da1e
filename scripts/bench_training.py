"""Seconds per training step of recsys and of the Merlin notebook's loop, in turn, each as a process of its own.

usage: bench_training.py PREPARED [PEER_DATA --peer merlin_train.py] [--rounds 3] [--steps 12] [--dense] [--out FILE]

PREPARED is a folder that `recsys etl` wrote (workspace/data/<key>), PEER_DATA what nvtabular_etl.py wrote, of the same raw
rows. Both train the notebook's network (512, 512 and 16 dims; 128-128-128; batch 32,768), their loaders included. The first
step of each process is not counted. Ours is `train.sparse: true`; --dense times `false`, Adam over whole tables, too.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BATCH = 32_768


def work(folder: Path, steps: int, *, sparse: bool) -> dict[str, Any]:
    """Train for some steps in this process; return the seconds of one, the first not counted."""
    import torch

    from recsys_cli.config import TrainConfig
    from recsys_cli.loader import Loader
    from recsys_cli.models import build
    from recsys_cli.training.events import Stepped
    from recsys_cli.training.loop import Training
    from recsys_cli.workspace import PreparedData

    data = PreparedData(folder)
    torch.manual_seed(42)
    config = TrainConfig(sparse=sparse, batch_size=BATCH, device="cpu")
    model = build("mlp", {}, data.schema, sparse=sparse)
    training = Training(model, config, Loader(data, "train", batch_size=BATCH, shuffle=True), None, label="label")
    started = waited = 0.0
    for event in training.run():
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
        "precision": training.precision,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def run(command: list[str]) -> tuple[str, float]:
    """Run a program; return what it printed, and its peak memory in GB."""
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{text[-2000:]}")
    return text, usage.ru_maxrss / 1e6


def measure_ours(folder: Path, steps: int, mode: str) -> dict[str, Any]:
    """Time recsys in a process of its own."""
    text, memory = run([sys.executable, __file__, str(folder), "--steps", str(steps), "--worker", mode])
    return {"name": f"recsys, {mode}", **json.loads(text.splitlines()[-1]), "peak_gb": memory}


def measure_peer(program: Path, folder: Path, steps: int) -> dict[str, Any]:
    """Time the peer in a process of its own."""
    text, memory = run([sys.executable, str(program), str(folder), str(steps)])
    found = re.search(r"([\d.]+) s a step, of which ([\d.]+) s waiting", text)
    if found is None:
        raise SystemExit(f"{program} printed no time:\n{text[-2000:]}")
    return {"name": "peer", "seconds": float(found[1]), "waiting": float(found[2]), "peak_gb": memory}


def report(rounds: list[dict[str, dict[str, Any]]]) -> None:
    """Print what was measured, and the peer's time over ours, round by round."""
    for name in rounds[0]:
        seconds = sorted(one[name]["seconds"] for one in rounds)
        waiting = statistics.median(one[name]["waiting"] for one in rounds)
        memory = max(one[name]["peak_gb"] for one in rounds)
        middle = statistics.median(seconds)
        print(
            f"{name:16} {middle:.3f} s/step ({seconds[0]:.3f} to {seconds[-1]:.3f}), {BATCH / middle / 1e3:.0f} k rows/s, "
            f"{waiting:.3f} s/step waiting, peak {memory:.2f} GB"
        )
    for name in rounds[0]:
        if name != "peer" and "peer" in rounds[0]:
            ratios = sorted(one["peer"]["seconds"] / one[name]["seconds"] for one in rounds)
            median = statistics.median(ratios)
            print(f"peer / {name}: {ratios[0]:.2f} min, {median:.2f} median, {ratios[-1]:.2f} max")


def main() -> None:
    """Run all in turn and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prepared", type=Path)
    parser.add_argument("peer_data", type=Path, nargs="?")
    parser.add_argument("--peer", type=Path, help="the peer's program, merlin_train.py")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--dense", action="store_true", help="time our dense Adam as well")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    parser.add_argument("--worker", choices=["sparse", "dense"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        print(json.dumps(work(arguments.prepared, arguments.steps, sparse=arguments.worker == "sparse")))
        return
    rounds: list[dict[str, dict[str, Any]]] = []
    for _ in range(arguments.rounds):
        measured = [measure_ours(arguments.prepared, arguments.steps, "sparse")]
        if arguments.peer and arguments.peer_data:
            measured.append(measure_peer(arguments.peer, arguments.peer_data, arguments.steps))
        if arguments.dense:
            measured.append(measure_ours(arguments.prepared, arguments.steps, "dense"))
        rounds.append({one.pop("name"): one for one in measured})
        print("  ".join(f"{name} {one['seconds']:.3f} s" for name, one in rounds[-1].items()), flush=True)
    report(rounds)
    if arguments.out:
        machine = {"machine": platform.platform(), "cores": os.cpu_count(), "python": platform.python_version()}
        arguments.out.write_text(json.dumps({**machine, "batch": BATCH, "rounds": rounds}, indent=2) + "\n")


if __name__ == "__main__":
    main()
