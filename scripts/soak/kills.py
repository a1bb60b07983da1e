"""Kills at random moments: what was there stays whole, and the same command comes to the same figures."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

from scripts.soak.arena import Arena, Outcome, check_status

COMMANDS = {
    "etl --force": ("etl", "x.yaml", "--force"),
    "train --force": ("train", "x.yaml", "--force"),
    "evaluate": ("evaluate", "--force"),
    "bench": ("bench", "x.yaml"),
    "tune": ("tune", "x.yaml"),
}
_IN_A_ROW = 3
"""At most so many kills of one command before it may end."""


def main(seed: int, count: int, base: Arena, folder: Path) -> Outcome:
    """Kill each command `count` times, or try so three times as often; after one to three kills it is run to its end."""
    outcome = Outcome("kills")
    for name, line in COMMANDS.items():
        _of(name, line, random.Random(f"{seed} {name}"), count, base, folder, outcome)
    return outcome


def _of(
    name: str, line: tuple[str, ...], rng: random.Random, count: int, base: Arena, folder: Path, outcome: Outcome
) -> None:
    started = time.monotonic()
    first = base.copy(folder / "reference")
    answer = first.run(*line)
    outcome.expect(answer.code == 0, f"{name} without a kill", answer)
    seconds = time.monotonic() - started
    expected = _result(first)
    done = tried = 0
    while done < count and tried < 3 * count:
        arena = base.copy(folder / "killed")
        for _ in range(min(rng.randint(1, _IN_A_ROW), count - done)):
            at = rng.uniform(0, seconds)
            started = time.monotonic()
            process = arena.start(*_going_on(name, line, arena))
            time.sleep(at)
            killed = process.kill()
            outcome.count(f"{name}: killed" if killed else f"{name}: over before the kill")
            if not killed:  # the machine is less busy than before
                seconds = min(seconds, time.monotonic() - started)
            done, tried = done + killed, tried + 1
            check_status(arena, outcome, f"kill {done} of {name} at {at:.3f} s")
        answer = arena.run(*_going_on(name, line, arena))
        outcome.expect(answer.code == 0, f"{name} after kill {done}", answer)
        outcome.expect(_same(_result(arena), expected), f"{name} after kill {done} came to other results")
        left = [str(path) for path in (arena.workspace / ".scratch").glob("*")]
        outcome.expect(not left, f"{name} after kill {done} left {left}")


def _going_on(name: str, line: tuple[str, ...], arena: Arena) -> tuple[str, ...]:
    """Return how a user goes on: a training that was begun is resumed."""
    begun = [run for run in (arena.workspace / "runs").glob("*") if not (run / "manifest.json").exists()]
    resumable = any((run / "config.yaml").exists() for run in begun)
    return ("train", "x.yaml", "--resume") if name == "train --force" and resumable else line


def _result(arena: Arena) -> dict[str, Any]:
    """Return what the workspace came to: the weights of each finished run by its key, and the figures of the evaluated."""
    runs = [run for run in sorted((arena.workspace / "runs").glob("*")) if (run / "manifest.json").exists()]
    weights = {run.name.rpartition("-")[2]: load_file(run / "checkpoints" / "best.safetensors") for run in runs}
    return {"weights": weights, "figures": arena.figures()}


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    a, b = one["weights"], other["weights"]
    return a.keys() == b.keys() and all(
        a[run].keys() == b[run].keys() and all(a[run][name].tobytes() == b[run][name].tobytes() for name in a[run])
        for run in a
    )
