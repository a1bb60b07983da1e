"""`recsys --help` answers at once, because it loads nothing heavy."""

import json
import os
import subprocess
import sys
from pathlib import Path

HEAVY = ("torch", "polars", "pandas", "pyarrow", "numpy", "pydantic", "httpx", "rich", "yaml", "filelock", "dask")
DEMO = Path(__file__).resolve().parents[2] / "configs" / "demo.yaml"
PROGRAM = """
import json, sys
from recsys_cli.cli import app

for line in json.loads(sys.argv[1]):
    code = app(line, standalone_mode=False)
    loaded = sorted({name.partition(".")[0] for name in sys.modules})
    print("\\n" + json.dumps({"code": code, "loaded": loaded}))
"""


READ = {"pydantic", "yaml"}
SHOWN = READ | {"rich", "filelock"}
"""Packages imported to show a config and a workspace."""
ROWS = SHOWN | {"numpy", "pyarrow"}
LINES = [
    (["--help"], set()),
    (["--version"], set()),
    # Typer itself takes pydantic to read values such as --workspace.
    ([], {"pydantic"}),
    (["train", "--help"], {"pydantic"}),
    (["etl", "--help"], {"pydantic"}),
    (["trian"], {"pydantic"}),
    (["config", str(DEMO)], READ),
    *((line.split(), SHOWN) for line in ("ls models", "ls ops", "ls engines", "ls metrics", "status")),
    *((line.split(), ROWS) for line in ("validate ratings.yaml", "etl ratings.yaml", "report", "doctor")),
    (["ls", "datasets"], ROWS | {"httpx"}),
]
"""Lines and the heavy packages that they may load, in the order of what they may."""


def test_read_only_commands_load_nothing_heavier_than_they_need(stations):
    """All lines in one new process, as a line may load what an earlier one may."""
    workspace = {"RECSYS_WORKSPACE": str(stations["finished"] / "workspace"), "BROWSER": "true"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([line for line, _ in LINES])],
        capture_output=True, text=True, check=True, env={**os.environ, **workspace}, cwd=stations["finished"],
    )  # fmt: skip
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"code"')]
    for (line, allowed), found in zip(LINES, answers, strict=True):
        assert set(HEAVY) & set(found["loaded"]) <= allowed, line
        assert found["code"] == (2 if line == ["trian"] else 0), line
