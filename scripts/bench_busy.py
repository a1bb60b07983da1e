"""Seconds of `recsys train` on a quiet machine and beside a busy process, by how idle OpenMP threads wait.

usage: bench_busy.py [--rounds 3] [--busy 0 1]

The demo's data, 4 epochs, whole process. `spin` is OpenMP's own default, `sleep` does not spin, `ours` sleeps where other
processes take cores at the start, and spins elsewhere. They run in turn. The result goes to scripts/results/busy.json, as
seconds and processor seconds, with the ratio of each round.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from measure import Run, figures, keep, machine, run, spread

HERE = Path(__file__).resolve().parent
RECSYS = str(Path(sys.executable).with_name("recsys"))
POLICIES = {"ours": [], "spin": ["GOMP_SPINCOUNT=300000"], "sleep": ["OMP_WAIT_POLICY=passive"]}
"""By name: the variable to set; 300,000 turns are what libgomp takes where nothing is set."""


def main() -> None:
    """Measure in turn and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 1], help="numbers of busy processes beside it")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        recsys = [RECSYS, "--workspace", folder, "--quiet"]
        run([*recsys, "download", "synthetic-small"])
        run([*recsys, "etl", str(HERE.parent / "configs" / "demo-labels.yaml")])
        train = [*recsys, "train", "--force", "--epochs", "4", "train.early_stopping=null"]
        found = {f"{number} busy processes": _compare(train, number, given.rounds) for number in given.busy}
    keep("busy", {"machine": machine("torch"), **found})


def _compare(command: list[str], number: int, rounds: int) -> dict[str, object]:
    runs: dict[str, list[Run]] = {name: [] for name in POLICIES}
    with busy(number):
        for _ in range(rounds):
            for name, variables in POLICIES.items():
                runs[name].append(run(["env", *variables, *command]))
    ratios = {
        f"times faster than spin: {name}": spread(
            [a.seconds / b.seconds for a, b in zip(runs["spin"], of_one, strict=True)]
        )
        for name, of_one in runs.items()
        if name != "spin"
    }
    return {name: figures(of_one) for name, of_one in runs.items()} | ratios


@contextmanager
def busy(number: int) -> Iterator[None]:
    """Run processes beside that only compute."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"], env=environment) for _ in range(number)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


if __name__ == "__main__":
    main()
