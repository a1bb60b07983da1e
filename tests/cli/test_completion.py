"""What a shell offers: through bash's own completion function, quick, and never an error."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from recsys_cli.cli import app, shells
from recsys_cli.cli.completion import answer, complete
from tests.cli.conftest import Recsys

BASH = shutil.which("bash")
PROGRAM = Path(sys.executable).parent / "recsys"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a working directory with two configs and two runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RECSYS_WORKSPACE", raising=False)
    for name in ("mine.yaml", "my file.yaml", "notes.txt", "configs/demo.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    for name in ("20260101T000000-mlp-aaaaaaaa", "20260102T000000-ease-bbbbbbbb"):
        (tmp_path / "workspace" / "runs" / name).mkdir(parents=True)
        (tmp_path / "workspace" / "runs" / name / "config.yaml").touch()
    return tmp_path


def words(line: str) -> list[str]:
    return [word for word, _ in complete(get_command(app), line)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("recsys val", ["validate"]),
        ("recsys --json val", ["validate"]),
        ("recsys --workspace elsewhere val", ["validate"]),
        ("recsys train --re", ["--resume"]),
        ("recsys train --wor", ["--workspace"]),
        ("recsys train model.name=eas", ["model.name=ease"]),
        (
            "recsys train mine.yaml dataset.name=movielens-10",
            ["dataset.name=movielens-100k", "dataset.name=movielens-10m"],
        ),
        ("recsys train mine.yaml etl.engine=n", ["etl.engine=nvtabular"]),
        ("recsys train mine.yaml train.early", ["train.early_stopping="]),
        ("recsys train mine.yaml train.precision=b", ["train.precision=bf16"]),
        (
            "recsys train mine.yaml train.sparse_embeddings=",
            ["train.sparse_embeddings=true", "train.sparse_embeddings=false"],
        ),
        ("recsys train model.name=ease model.max", ["model.max_items="]),
        ("recsys train split.method=te", ["split.method=temporal"]),
        ("recsys validate mi", ["mine.yaml"]),
        ("recsys validate conf", ["configs/"]),
        ("recsys validate configs/", ["configs/demo.yaml"]),
        ("recsys evaluate 2026", ["20260102T000000-ease-bbbbbbbb", "20260101T000000-mlp-aaaaaaaa"]),
        ("recsys compare 20260101T000000-mlp-aaaaaaaa 20260102", ["20260102T000000-ease-bbbbbbbb"]),
        ("recsys -w nowhere evaluate 2026", []),
        ("recsys train --continue 20260101", ["20260101T000000-mlp-aaaaaaaa"]),
        ("recsys ls mod", ["models"]),
        ("recsys ls models sas", ["sasrec"]),
        ("recsys ls splits tem", ["temporal"]),
        ("recsys inspect u", ["user"]),
        ("recsys init not", ["notes.txt"]),
        ("recsys download movielens-la", ["movielens-latest-small"]),
        ("recsys nonsense ", []),
        ("recsys train 'mine", ["mine.yaml"]),
        ("recsys train --epochs ", []),
    ],
)
def test_completions(line: str, expected: list[str]) -> None:
    assert words(line) == expected


def test_every_command_and_option_is_offered() -> None:
    group = get_command(app)
    assert words("recsys ") == list(group.commands)  # type: ignore[attr-defined]
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        offered = words(f"recsys {name} --")
        for param in command.params:
            assert param.param_type_name == "argument" or set(param.opts) & set(offered)


def in_bash(line: str) -> list[str]:
    """Call bash's completion function like bash, with the installed program."""
    program = f"""
{shells.SCRIPTS["bash"]}
COMP_LINE={line!r} COMP_POINT=${{#COMP_LINE}}
COMP_POINT=${{#COMP_LINE}}
_recsys_completion "$1"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    path = f"{PROGRAM.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", program, "-", str(PROGRAM)],
        capture_output=True, text=True, check=True, env={**os.environ, "PATH": path},
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done.stdout.split("\n")[:-1]


@pytest.mark.skipif(BASH is None or not PROGRAM.is_file(), reason="needs bash and the console script")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("recsys val", ["validate"]),
        ("recsys train model.name=eas", ["ease"]),  # bash takes what stands behind = for a word of its own
        ("recsys validate my", [r"my\ file.yaml"]),
        ("recsys train --workspace=wo", ["workspace/"]),
        ("recsys compare 20260101", ["20260101T000000-mlp-aaaaaaaa"]),
        ("recsys nonsense x", []),
    ],
)
def test_bash_is_answered(line: str, expected: list[str]) -> None:
    assert [word for word in in_bash(line) if word] == expected


def test_fish_gets_meanings_and_zsh_words() -> None:
    group = get_command(app)
    assert answer(group, "fish", "recsys validate -").splitlines()[0].startswith("--workspace\tFolder of")
    assert answer(group, "zsh", "recsys train model.name=eas") == "model.name=ease"


QUICK = """
import sys
from typer.main import get_command
from recsys_cli.cli import app
from recsys_cli.cli.completion import complete
assert complete(get_command(app), sys.argv[1])
heavy = {"torch", "polars", "pyarrow", "numpy", "pydantic", "rich", "yaml"}
print(sorted(heavy & {name.partition(".")[0] for name in sys.modules}))
"""


@pytest.mark.parametrize(
    "line",
    [
        "recsys ",
        "recsys train --",
        "recsys train model.name=",
        "recsys validate mi",
        "recsys evaluate 2",
        "recsys ls models ",
    ],
)
def test_names_and_paths_are_offered_without_loading_anything(line: str) -> None:
    done = subprocess.run([sys.executable, "-c", QUICK, line], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(("shell", "start"), [("bash", ".bashrc"), ("zsh", ".zshrc"), ("fish", None)])
def test_install_writes_the_script_once(
    recsys: Recsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str, start: str | None
) -> None:
    monkeypatch.setattr(shells, "current", lambda: shell)
    monkeypatch.setenv("HOME", str(tmp_path))
    if start:
        Path(start).write_text("mine")
    for _ in range(2):
        answer = recsys("--install-completion")
        assert answer.code == 0
    assert (
        Path(answer.out.split()[1].rstrip(";")).read_text() == shells.SCRIPTS[shell] == recsys("--show-completion").out
    )
    if start:
        before, *lines = Path(start).read_text().splitlines()
        assert before == "mine"
        assert len(lines) == 1
