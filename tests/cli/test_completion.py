"""Words offered by the shell: names of commands, options, the registry and the workspace, without heavy imports."""

import json
import subprocess
import sys

import pytest

PROGRAM = """
import atexit, json, os, sys
heavy = {"torch", "polars", "pyarrow", "numpy", "rich", "yaml"}
atexit.register(lambda: print(json.dumps(sorted(heavy & {name.partition(".")[0] for name in sys.modules})), file=sys.stderr))
os.environ |= {"_RECSYS_COMPLETE": "complete_bash", "COMP_WORDS": sys.argv[1], "COMP_CWORD": sys.argv[2]}
from recsys_cli.cli import main
sys.argv = ["recsys"]
main()
"""


def offered(line: str) -> list[str]:
    """Return the words offered for the last word of a line, and check what was loaded for them."""
    position = len(line.split(" ")) - 1
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, line, str(position)], capture_output=True, text=True, check=False
    )
    assert json.loads(done.stderr) == []
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("recsys --json val", ["validate"]),
        ("recsys train --re", ["--resume"]),
        ("recsys train model.name=eas", ["model.name=ease"]),
        ("recsys train mine.yaml etl.engine=n", ["etl.engine=nvtabular"]),
        ("recsys evaluate 2026", ["20260102T000000-ease-bbbbbbbb", "20260101T000000-mlp-aaaaaaaa"]),
        ("recsys -w nowhere evaluate 2026", []),
        ("recsys train --continue 20260101", ["20260101T000000-mlp-aaaaaaaa"]),
        ("recsys ls models sas", ["sasrec"]),
        ("recsys inspect u", ["user"]),
        ("recsys download movielens-la", ["movielens-latest-small"]),
        ("recsys nonsense x", []),
    ],
)
def test_names_are_offered(line, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RECSYS_WORKSPACE", raising=False)
    for name in ("20260101T000000-mlp-aaaaaaaa", "20260102T000000-ease-bbbbbbbb"):
        (tmp_path / "workspace" / "runs" / name).mkdir(parents=True)
        (tmp_path / "workspace" / "runs" / name / "config.yaml").touch()
    assert offered(line) == expected


def test_the_script_is_shown(recsys, monkeypatch):
    monkeypatch.setattr("typer.completion._get_shell_name", lambda: "zsh")
    assert recsys("--show-completion").out.startswith("#compdef recsys")
