"""`recsys --help` answers at once, because it loads nothing heavy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "polars", "pandas", "pyarrow", "numpy", "pydantic", "httpx", "rich", "yaml", "filelock", "dask")
DEMO = Path(__file__).resolve().parents[2] / "configs" / "demo.yaml"
RECSYS = str(Path(sys.executable).with_name("recsys"))
PROGRAM = """
import json, sys
from recsys_cli.cli import app
code = app(sys.argv[1:], standalone_mode=False)
loaded = sorted({name.partition(".")[0] for name in sys.modules})
print(json.dumps({"code": code, "loaded": loaded}))
"""


TOOLS = {"numpy", "pyarrow", "pydantic", "rich", "yaml", "filelock"}
"""Packages imported to read a config and a workspace."""


def loaded_by(*line: str, env: dict[str, str] | None = None) -> tuple[int, set[str]]:
    """Run a command in a new process; return its exit code and the heavy packages imported."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *line], capture_output=True, text=True, check=True,
        env={**os.environ, "BROWSER": "true", **(env or {})},
    )  # fmt: skip
    found = json.loads(done.stdout.splitlines()[-1])
    return found["code"], set(HEAVY) & set(found["loaded"])


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        (["--help"], set()),
        (["--version"], set()),
        # Typer itself takes pydantic to read values such as --workspace.
        ([], {"pydantic"}),
        (["train", "--help"], {"pydantic"}),
        (["trian"], {"pydantic"}),
    ],
)
def test_help_loads_nothing_heavy(line: list[str], allowed: set[str]) -> None:
    code, loaded = loaded_by(*line)
    assert loaded <= allowed
    assert code == (2 if line == ["trian"] else 0)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with an evaluated run."""
    root = tmp_path_factory.mktemp("workspace")
    done = subprocess.run(
        [RECSYS, "run", str(DEMO), "dataset.name=synthetic", "dataset.rows=1100", "dataset.users=60", "dataset.items=40",
         "train.epochs=1", "--workspace", str(root), "--quiet"],
        capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return root


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        (["status"], TOOLS),
        (["report"], TOOLS),
        (["doctor"], TOOLS),
        (["ls", "models"], TOOLS),
        (["ls", "ops"], TOOLS),
        (["ls", "engines"], TOOLS),
        (["ls", "datasets"], TOOLS | {"httpx"}),
        (["ls", "metrics"], TOOLS),
        (["validate", str(DEMO)], TOOLS),
        (["config", str(DEMO)], TOOLS),
        (["etl", "--help"], {"pydantic"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "allowed",
)
def test_read_only_commands_do_not_import_torch(line: list[str], allowed: set[str], trained: Path) -> None:
    code, loaded = loaded_by(*line, env={"RECSYS_WORKSPACE": str(trained)})
    assert code == 0
    assert loaded <= allowed
