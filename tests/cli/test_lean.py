"""With only the core's packages, as of `make setup`, commands work or name the missing extra."""

import json
import subprocess
import sys
from pathlib import Path

CONFIG = Path(__file__).resolve().parents[2] / "configs" / "demo.yaml"
PROGRAM = """
import json, re, sys
from importlib import metadata
from importlib.machinery import PathFinder

def closure(name, found):
    for line in metadata.requires(name) or ():
        requirement, _, marker = line.partition(";")
        needed = re.split(r"[^A-Za-z0-9._-]", requirement.strip(), maxsplit=1)[0].lower().replace("_", "-")
        if "extra ==" in marker.replace("'", '"') or needed in found:
            continue
        try:
            metadata.version(needed)
        except metadata.PackageNotFoundError:
            continue
        found.add(needed)
        closure(needed, found)
    return found

core = closure("recsys-cli", {"recsys-cli"})
owners = metadata.packages_distributions()
extra = {top for top, names in owners.items() if not {name.lower().replace("_", "-") for name in names} & core}
extra -= set(sys.stdlib_module_names) | {"recsys_cli"}

class Lean:
    # Finds modules and distributions of the core alone.

    @staticmethod
    def find_spec(name, path=None, target=None):
        return None if name.partition(".")[0] in extra else PathFinder.find_spec(name, path, target)

    @staticmethod
    def find_distributions(*args):
        found = PathFinder.find_distributions(*args)
        return (one for one in found if (one.metadata["Name"] or "").lower().replace("_", "-") in core)

sys.meta_path[sys.meta_path.index(PathFinder)] = Lean
assert {"implicit", "lightgbm", "optuna", "pandas"} <= extra, sorted(extra)

from recsys_cli.cli import app
from recsys_cli.errors import MissingExtraError
from recsys_cli.etl.engine import choose
from recsys_cli.models import kind_of
from recsys_cli.registry import MODELS
from pathlib import Path

missing = {}
for name in MODELS:
    try:
        kind_of(name)
    except MissingExtraError as error:
        missing[name] = error.hint
config = sys.argv[1]
small = ["dataset={name: synthetic, users: 60, items: 40, rows: 1000}", "train.epochs=1", "train.device=cpu"]
lines = [
    ["run", config, *small], ["etl", config, *small, "etl.engine=nvtabular", "--force"], ["tune", config, *small, "model.name=mlp"],
    ["train", config, *small, "train.trackers=[mlflow]", "--force"], ["doctor"], ["status"], ["ls", "models"],
]
codes = [app(["-q", *line], standalone_mode=False) for line in lines]
print(json.dumps({"missing": missing, "codes": codes, "engine": choose("auto", Path("."))[0]}))
"""


def test_the_core_runs_the_demo_and_names_missing_extras(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(CONFIG)], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["missing"] == {"lightgbm": "pip install 'recsys-cli[lightgbm]'"}
    assert found["engine"] == "polars"
    assert found["codes"] == [0, 5, 5, 5, 0, 0, 0], done.stderr
    assert "Traceback" not in done.stderr
