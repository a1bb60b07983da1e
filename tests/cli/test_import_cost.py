"""`recsys --help` answers at once, because it loads nothing heavy."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.cli.conftest import copied

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


SHOWN = {"pydantic", "yaml", "rich", "filelock"}
ROWS = SHOWN | {"numpy", "pyarrow"}
LINES = [
    (["--help"], set()),
    (["--version"], set()),
    # Typer itself takes pydantic to read values such as --workspace.
    ([], {"pydantic"}),
    (["train", "--help"], {"pydantic"}),
    (["etl", "--help"], {"pydantic"}),
    (["trian"], {"pydantic"}),
    (["config", str(DEMO)], {"pydantic", "yaml"}),
    *((line.split(), SHOWN) for line in ("ls models", "ls ops", "ls engines", "ls metrics", "status")),
    *((line.split(), ROWS) for line in ("validate ratings.yaml", "etl ratings.yaml", "report", "doctor")),
    (["ls", "datasets"], ROWS | {"httpx"}),
]
"""Lines and the heavy packages that they may load, in the order of what they may."""


def loaded(folder, lines):
    """Type lines in one new process; return the code and the loaded packages after each."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(lines)], capture_output=True, text=True, check=True, cwd=folder,
        env={**os.environ, "RECSYS_WORKSPACE": str(folder / "workspace"), "BROWSER": "true"},
    )  # fmt: skip
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"code"')]
    return [(answer["code"], set(answer["loaded"])) for answer in answers]


def test_read_only_commands_load_nothing_heavier_than_they_need(stations, tmp_path):
    """All lines in one new process, as a line may load what an earlier one may."""
    answers = loaded(copied(stations["finished"], tmp_path), [line for line, _ in LINES])
    for (line, allowed), (code, packages) in zip(LINES, answers, strict=True):
        assert set(HEAVY) & packages <= allowed, line
        assert code == (2 if line == ["trian"] else 0), line


def test_a_training_loads_no_packages_of_other_work(stations, tmp_path):
    line = ["train", "model.name=mf", "train.epochs=1", "train.batch_size=64"]
    [(code, packages)] = loaded(copied(stations["prepared"], tmp_path), [line])
    assert code == 0
    assert not packages & {"pandas", "scipy", "sympy", "polars", "httpx", "jinja2"}
