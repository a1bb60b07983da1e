"""Equal commands at once: one does the work, the others wait and find it done."""

from __future__ import annotations

import random
import time
from pathlib import Path

from scripts.soak.arena import Arena, Outcome, check_status

LINES = {
    "evaluate": (2, ("evaluate", "--force")),
    "run from nothing": (2, ("run", "x.yaml")),
    "train": (3, ("train", "x.yaml", "train.seed=7")),
    "train --resume": (2, ("train", "x.yaml", "train.seed=7", "--resume")),
}


def main(seed: int, count: int, base: Arena, folder: Path) -> Outcome:
    """Start each group of equal commands `count` times, within a tenth of a second."""
    outcome = Outcome("concurrent")
    for name, (number, line) in LINES.items():
        rng = random.Random(f"{seed} {name}")
        for attempt in range(count):
            arena = Arena(_empty(folder / "at-once")) if "nothing" in name else base.copy(folder / "at-once")
            if "--resume" in line:
                _begin(arena, line[:-1], outcome)
            processes = []
            for _ in range(number):
                processes.append(arena.start(*line))
                time.sleep(rng.uniform(0, 0.1))
            answers = [process.wait() for process in processes]
            outcome.count(name)
            for answer in answers:
                outcome.expect(answer.code == 0, f"{name}, attempt {attempt}", answer)
            check_status(arena, outcome, name)
            runs = len(list((arena.workspace / "runs").glob("*/manifest.json")))
            expected = 1 if line[0] in {"evaluate", "run"} else 2
            outcome.expect(runs == expected, f"{name}, attempt {attempt}: {runs} runs instead of {expected}")
    return outcome


def _empty(folder: Path) -> Path:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
    return folder


def _begin(arena: Arena, line: tuple[str, ...], outcome: Outcome) -> None:
    """Leave a run unfinished that has a checkpoint."""
    process = arena.start(*line)
    deadline = time.monotonic() + 60
    while len(list(arena.workspace.glob("runs/*/checkpoints/last.safetensors"))) < 2:
        if time.monotonic() > deadline:
            break
        time.sleep(0.002)
    outcome.expect(process.kill(), "a training was over before it could be killed")
