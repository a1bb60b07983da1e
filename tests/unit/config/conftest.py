"""Fixtures of config tests: a written config file, and the problems of an invalid one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from recsys_cli.config import load
from recsys_cli.errors import ConfigError

Write = Callable[..., Path]
HEAD = """\
dataset: {name: movielens-25m}
features:
  user: userId
  item: movieId
  label: label
  timestamp: timestamp
  ops:
    - {op: Categorify, columns: [userId, movieId, genres]}
    - {op: LambdaOp, expression: "rating > 3", output: label, dtype: int8}
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Write:
    """Write HEAD, MORE of the test module or other lines, and a text as x.yaml in the working directory."""
    monkeypatch.chdir(tmp_path)

    def write(rest: str, *, more: str = getattr(request.module, "MORE", "")) -> Path:
        path = Path("x.yaml")
        path.write_text(HEAD + more + rest)
        return path

    return write


@pytest.fixture
def problems() -> Callable[..., list[str]]:
    """Load an invalid config and return the lines of the error."""

    def problems(path: Path, *overrides: str) -> list[str]:
        with pytest.raises(ConfigError, match=r"x\.yaml: \d+ problem") as caught:
            load(path, overrides)
        return [line.strip() for line in caught.value.message.splitlines()[1:]]

    return problems
