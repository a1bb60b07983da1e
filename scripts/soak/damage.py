"""Damaged files: no command ends unexpectedly, `status` goes on, and what ends well has the right figures."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scripts.soak.arena import Arena, Outcome

READERS = (
    ("evaluate", "--force"), ("report",), ("inspect", "user", "1", "--run", "mlp"), ("etl", "x.yaml"), ("train", "x.yaml"),
    ("train", "x.yaml", "--resume"), ("tune", "x.yaml"), ("compare", "mlp", "popularity"), ("train", "x.yaml", "--force"),
    ("doctor",), ("evaluate",),
)  # fmt: skip
_CODES = {0, 2, 3, 4}
_COMMANDS = 3
"""So many of them are tried after each damage, beside `status`."""


def main(seed: int, count: int, base: Arena, folder: Path) -> Outcome:
    """Damage one file of the workspace, `count` times."""
    outcome = Outcome("damage")
    rng = random.Random(seed)
    for extra in (("tune", "x.yaml"), ("train", "x.yaml", "model.name=popularity"), ("evaluate", "popularity")):
        answer = base.run(*extra)
        outcome.expect(answer.code == 0, f"{extra} before any damage", answer)
    base.run("train", "x.yaml")  # the current config is the first one again
    base.run("evaluate")
    for number in range(count):
        _once(number, rng, base, folder / "damaged", outcome)
    return outcome


def _once(number: int, rng: random.Random, base: Arena, folder: Path, outcome: Outcome) -> None:
    arena = base.copy(folder)
    files = sorted(path for path in arena.workspace.rglob("*") if path.is_file() and ".locks" not in path.parts)
    path, how = rng.choice(files), rng.choice(HOWS)
    how(path, rng)
    what = f"{number}: {how.__name__} of {path.relative_to(arena.workspace)}"
    answer = arena.run("status", "--json")
    outcome.expect(answer.code == 0, f"status after {what}", answer)
    for line in rng.sample(READERS, _COMMANDS):
        answer = arena.run(*line)
        outcome.count(f"exit {answer.code}")
        bad = answer.code not in _CODES or "Traceback" in answer.text or "\x1b" in answer.text
        outcome.expect(not bad, f"{' '.join(line)} after {what}", answer)
        if answer.code == 0 and line == ("evaluate", "--force"):
            outcome.expect(_near(arena, base), f"other figures after {what}")
    outcome.count(how.__name__)


def _near(arena: Arena, base: Arena) -> bool:
    """Compare the figures just written with those of the same key before: a run made anew has a new time in its name."""
    path = max(arena.workspace.glob("runs/*/evaluation.json"), key=lambda path: path.stat().st_mtime_ns)
    before = list(base.workspace.glob(f"runs/*{path.parent.name.partition('-')[2]}/evaluation.json"))
    return bool(before) and _pointwise(path) == _pointwise(before[0])


def _pointwise(path: Path) -> Any:
    return json.loads(path.read_text())["pointwise"]


def cut(path: Path, rng: random.Random) -> None:
    """Leave only the beginning."""
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(len(content))] if content else b"")


def empty(path: Path, rng: random.Random) -> None:  # noqa: ARG001 - all damages are called alike
    """Leave nothing."""
    path.write_bytes(b"")


def flip(path: Path, rng: random.Random) -> None:
    """Flip one bit."""
    content = bytearray(path.read_bytes())
    if content:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def garbage(path: Path, rng: random.Random) -> None:
    """Put random bytes in its place."""
    path.write_bytes(rng.randbytes(rng.randint(1, 4_000)))


def delete(path: Path, rng: random.Random) -> None:  # noqa: ARG001 - all damages are called alike
    """Remove it."""
    path.unlink()


def append(path: Path, rng: random.Random) -> None:
    """Put random bytes behind it."""
    path.write_bytes(path.read_bytes() + rng.randbytes(100))


HOWS: tuple[Callable[[Path, random.Random], None], ...] = (cut, empty, flip, garbage, delete, append)
