"""The line as a test types it, and a small table of a user's own."""

import contextlib
import io
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

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
def recsys(tmp_path, monkeypatch):
    """Type a line in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RECSYS_WORKSPACE", raising=False)

    def run(*line, **env):
        found = CliRunner().invoke(app, [str(part) for part in line], env=env)
        assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
        return Answer(found.exit_code, found.stdout, found.stderr)

    return run


@pytest.fixture
def ratings(tmp_path):
    """A small table of a user's own."""
    return write_ratings(tmp_path)


@pytest.fixture(scope="session")
def stations(tmp_path_factory):
    """Folders where the ratings were taken so far, once per session: `labelled`, then `prepared`, then `finished`."""
    lines = {
        "labelled": [*["-q", "init", "ratings.csv", "--task", "label"]],
        "prepared": ["-q", "etl", "ratings.yaml"],
        "finished": [
            *["run", "--json", "train.epochs=2", "train.batch_size=64", "evaluate.bootstrap=20", "evaluate.k=[10]"]
        ],
    }
    before, folders = tmp_path_factory.mktemp("ratings"), {}
    write_ratings(before)
    for name, line in lines.items():
        folders[name] = before = copied(before, tmp_path_factory.mktemp(name))
        done = type_in(before, line)
        (before / f"{name}.json").write_text(done.stdout)
    return folders


@pytest.fixture
def labelled(recsys, stations, tmp_path):
    """`recsys init --task label` was run on the ratings in the working directory; their path."""
    return copied(stations["labelled"], tmp_path) / "ratings.csv"


@pytest.fixture
def prepared(recsys, stations, tmp_path):
    """`recsys etl` was run after that."""
    return copied(stations["prepared"], tmp_path) / "ratings.csv"


@pytest.fixture
def finished(recsys, stations, tmp_path):
    """`recsys run` was run after that; its answer."""
    return json.loads((copied(stations["finished"], tmp_path) / "finished.json").read_text())


def type_in(folder: Path, *lines: list[str]) -> Result:
    """Type lines in a folder, all of which succeed; return what the last one left."""
    with contextlib.chdir(folder), contextlib.redirect_stderr(io.StringIO()):
        for line in lines:
            done = CliRunner().invoke(app, line)
            assert done.exit_code == 0, done.output
    return done


def copied(made: Path, here: Path) -> Path:
    """Copy a folder with the times of its files, by which they are known, too."""
    shutil.copytree(made, here, dirs_exist_ok=True, copy_function=shutil.copy2)
    return here


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
