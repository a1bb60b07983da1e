"""The pages are true: their blocks run, and their commands, options, make targets, files and links exist.

A block without `no-run` behind its language runs, in order, in one folder per page with a `ratings.csv`. `no-run` marks a network,
a GPU, a long time or a placeholder; commands in it are still checked against the command line.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from recsys_cli.config.load import load

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "recsys_cli" / "README.md"])
FENCE = re.compile(r"^( *)```(\S*)[ ]*([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
INLINE = re.compile(r"`([^`\n]+)`")
LANGUAGES = {"bash", "python", "yaml", "toml", "text"}
NO_RUN = "no-run"
RUN_ELSEWHERE = {"docs/python.md"}
"""By tests/api."""
NEEDS = {"docs/tensorflow.md": "tensorflow"}
"""Optional package of a page's blocks."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the words behind it, its text."""

    language: str
    flags: str
    text: str

    @property
    def runs(self) -> bool:
        return self.flags != NO_RUN


def blocks(page: Path) -> list[Block]:
    return [
        Block(language, flags, textwrap.dedent(text)) for _, language, flags, text in FENCE.findall(page.read_text())
    ]


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def runnable(page: Path) -> list[Block]:
    if named(page) in RUN_ELSEWHERE:
        return []
    return [block for block in blocks(page) if block.runs and block.language in {"bash", "python"}]


def write_ratings(path: Path) -> None:
    """Users 1 to 60 rate 30 of 40 movies each, those of their own parity with more stars."""
    draw = np.random.default_rng(0)
    pairs = [(user, item) for user in range(1, 61) for item in draw.permutation(40)[:30] + 1]
    draw.shuffle(pairs)
    stars = (5 if (user + item) % 2 == 0 else 2 for user, item in pairs)
    lines = [
        f"{user},{item},{rating},{time}" for time, ((user, item), rating) in enumerate(zip(pairs, stars, strict=True))
    ]
    path.write_text("\n".join(["userId,movieId,rating,timestamp", *lines]) + "\n")


def commands(page: Path, program: str) -> list[list[str]]:
    """All lines of bash blocks and all inline code that start with a program, as words."""
    lines = [line for block in blocks(page) if block.language == "bash" for line in block.text.splitlines()]
    lines += INLINE.findall(FENCE.sub("", page.read_text()))
    return [shlex.split(line, comments=True) for line in lines if line.startswith(f"{program} ")]


every_page = pytest.mark.parametrize("page", PAGES, ids=named)


@every_page
def test_every_block_has_a_language(page: Path) -> None:
    for block in blocks(page):
        assert (block.language in LANGUAGES, block.flags in {"", NO_RUN}) == (True, True), block


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page)], ids=named)
def test_blocks_run(page: Path, tmp_path: Path) -> None:
    if (package := NEEDS.get(named(page))) and find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    write_ratings(tmp_path / "ratings.csv")
    for block in runnable(page):
        command = ["bash", "-euo", "pipefail", "-c"] if block.language == "bash" else [sys.executable, "-c"]
        done = subprocess.run(
            [*command, block.text], cwd=tmp_path, env=environment, text=True, capture_output=True, timeout=300
        )
        assert done.returncode == 0, f"{block.text}\n{done.stdout}\n{done.stderr}"


def test_there_are_blocks_to_run() -> None:
    assert {named(page) for page in PAGES if runnable(page)} >= {"docs/guide.md"}


@every_page
def test_every_command_and_option_exists(page: Path) -> None:
    surface = (ROOT / "tests" / "golden" / "cli_surface.txt").read_text().splitlines()
    everywhere = {*options(surface[0]), "--help"}
    by_verb = {line.split()[1]: options(line) | everywhere for line in surface[1:]}
    for words in commands(page, "recsys"):
        rest = [word for word in words[1:] if word not in {"--trust", "my_package", "…"}]
        verb = next((word for word in rest if not word.startswith("-")), None)
        known = by_verb.get(verb or "", everywhere)
        assert verb is None or verb in by_verb, f"recsys {verb}"
        assert {word for word in rest if word.startswith("-")} <= known, words


def options(line: str) -> set[str]:
    return {name for group in re.findall(r"\[(-[^\] ]+)", line) for name in group.split("/")}


@every_page
def test_every_make_target_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {word for words in commands(page, "make") for word in words[1:] if "=" not in word} <= targets


@every_page
def test_every_shipped_config_exists(page: Path) -> None:
    for name in re.findall(r"configs/([\w.-]+\.yaml)", page.read_text()):
        assert (ROOT / "configs" / name).is_file(), name


@every_page
def test_every_link_leads_to_a_file(page: Path) -> None:
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        assert target.startswith("https://") or (page.parent / target).exists(), target


@every_page
def test_every_yaml_block_is_valid(page: Path, tmp_path: Path) -> None:
    """As sections of the demo's config, instead of its own."""
    demo = sections((ROOT / "configs" / "demo.yaml").read_text())
    for block in blocks(page):
        if block.language == "yaml" and block.runs:
            path = tmp_path / "block.yaml"
            path.write_text("".join((demo | sections(block.text)).values()))
            load(path)


def sections(text: str) -> dict[str, str]:
    return {found[1]: found[0] for found in re.finditer(r"^(\w+):.*?(?=^\w+:|\Z)", text, re.MULTILINE | re.DOTALL)}


@every_page
def test_every_python_file_exists(page: Path) -> None:
    """In inline code with a folder; `<name>` stands for any."""
    folders = [ROOT / folder for folder in ("", "recsys_cli", "recsys_cli/etl")]
    for code in INLINE.findall(FENCE.sub("", page.read_text())):
        for name in re.findall(r"^[\w./*<>-]+/[\w.*<>-]+\.py\b", code):
            pattern = re.sub("<.*?>", "*", name)
            assert any([*folder.glob(pattern)] for folder in folders), name


def test_the_map_has_every_package() -> None:
    tree = blocks(ROOT / "recsys_cli" / "README.md")[0].text
    named = re.findall(r"── (\S+)", tree)
    packages = {f"{path.parent.name}/" for path in (ROOT / "recsys_cli").glob("*/__init__.py")}
    assert packages <= set(named)
    assert [name for name in named if not (ROOT / "recsys_cli" / name).exists()] == []
