"""`recsys --help` answers at once, because it loads nothing heavy."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ("torch", "polars", "pandas", "pyarrow", "numpy", "pydantic", "httpx", "rich", "yaml", "filelock", "dask")
PROGRAM = """
import json, sys
from recsys_cli.cli import app
code = app(sys.argv[1:], standalone_mode=False)
loaded = sorted({name.partition(".")[0] for name in sys.modules})
print(json.dumps({"code": code, "loaded": loaded}))
"""


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
    done = subprocess.run([sys.executable, "-c", PROGRAM, *line], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(HEAVY) & set(found["loaded"]) <= allowed
    assert found["code"] == (2 if line == ["trian"] else 0)
