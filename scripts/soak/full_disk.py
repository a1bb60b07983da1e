"""A full disk: the command says where, and ends well once there is space. Needs root, or limits the size of files."""

from __future__ import annotations

import random
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.soak.arena import Arena, Outcome, check_status

LINES = {
    "etl": ("etl", "x.yaml", "--force"),
    "train": ("train", "x.yaml", "--force"),
    "evaluate": ("evaluate", "--force"),
    "run": ("run", "x.yaml", "split.seed=3"),
}


def main(seed: int, count: int, base: Arena, folder: Path) -> Outcome:
    """Run each command `count` times on a file system that is nearly full, then again with space."""
    outcome = Outcome("full disk")
    used = sum(path.stat().st_size for path in base.folder.rglob("*") if path.is_file())
    for name, line in LINES.items():
        rng = random.Random(f"{seed} {name}")
        for _ in range(count):
            _once(name, line, rng, used, base, folder / "full", outcome)
    return outcome


def _once(
    name: str, line: tuple[str, ...], rng: random.Random, used: int, base: Arena, folder: Path, outcome: Outcome
) -> None:
    free = int(used * rng.uniform(0, 0.5))
    with _small(folder) as mounted:
        shutil.copytree(base.folder, folder, dirs_exist_ok=True)
        arena = Arena(folder)
        if mounted:
            _leave(folder, free)
            answer = arena.run(*line)
            (folder / "filling").unlink()
        else:
            limit = rng.randint(1_000, 200_000)
            answer = arena.run(*line, before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        outcome.count(f"{name}: " + ("enough space" if answer.code == 0 else "full"))
        named = answer.code == 7 and "no space left to write" in answer.text and "(stage: " in answer.text
        outcome.expect(answer.code == 0 or named, f"{name} with {free:,} bytes free", answer)
        check_status(arena, outcome, f"{name} with {free:,} bytes free")
        again = arena.run(*line)
        outcome.expect(again.code == 0, f"{name} with space again", again)


def _leave(folder: Path, free: int) -> None:
    """Fill a file system but for some bytes."""
    with (folder / "filling").open("wb") as file:
        file.write(b"\0" * max(0, shutil.disk_usage(folder).free - free))


@contextmanager
def _small(folder: Path) -> Iterator[bool]:
    """Mount a small file system; False where that is not allowed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", "size=64m", "soak", str(folder)]
    mounted = subprocess.run(command, check=False, capture_output=True).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)
