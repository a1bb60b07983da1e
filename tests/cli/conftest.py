"""The line as a test types it, and a small table of a user's own."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from recsys_cli.cli import app


@dataclass(frozen=True)
class Answer:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON object on stdout."""
        return json.loads(self.out)


Recsys = Callable[..., Answer]


@pytest.fixture
def recsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recsys:
    """Type a line in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RECSYS_WORKSPACE", raising=False)

    def run(*line: str, **env: str) -> Answer:
        found = CliRunner().invoke(app, [str(part) for part in line], env=env)
        assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
        return Answer(found.exit_code, found.stdout, found.stderr)

    return run


@pytest.fixture
def ratings(tmp_path: Path) -> Path:
    """A small table of a user's own."""
    return write_ratings(tmp_path)


def write_ratings(folder: Path) -> Path:
    """Write 600 ratings, where users like the items of their own half."""
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, 30, 600), rng.integers(0, 20, 600)
    stars = np.where((users + items) % 2 == 0, 5, 2)
    lines = [
        f"u{user},i{item},{star},{1_000 + row},x"
        for row, (user, item, star) in enumerate(zip(users, items, stars, strict=True))
    ]
    path = folder / "ratings.csv"
    path.write_text("\n".join(["user_id,item_id,rating,timestamp,device", *lines]) + "\n")
    return path


def drawn(draw: Callable[..., None], result: Any, width: int) -> str:
    """Draw a result on a terminal of a width."""
    screen = io.StringIO()
    draw(Console(file=screen, width=width, force_terminal=True, color_system=None, highlight=False), result)
    assert all(len(line) <= width for line in screen.getvalue().splitlines())
    return screen.getvalue()
