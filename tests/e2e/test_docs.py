"""The pages are true: their blocks run, and their commands, options, make targets, files and links exist.

A block without `no-run` behind its language runs, in order, in one folder per page with a `ratings.csv` and a `configs/demo.yaml`
of one epoch. Its workspace has the runs that several pages begin with, made once by the commands STARTED. `recsys serve` runs in
the background, on a free port, until the next one or the end of the page. Blocks with `no-run`
are in NOT_RUN with the reason; their commands are still checked against the command line.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import textwrap
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from recsys_cli.config.load import load
from tests.forked import program

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "recsys_cli" / "README.md"])
FENCE = re.compile(r"^( *)```(\S*)[ ]*([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
INLINE = re.compile(r"`([^`\n]+)`")
LANGUAGES = {"bash", "python", "yaml", "toml", "text"}
NO_RUN = "no-run"
RUN_ELSEWHERE = {"docs/python.md"}
"""By tests/api."""
_NETWORK, _SETUP, _MACHINES, _GPU = "the network", "makes an environment", "several machines", "a GPU"
NOT_RUN = {
    ("README.md", "make demo"): _SETUP,
    ("README.md", "recsys download movielens-25m"): _NETWORK,
    ("CONTRIBUTING.md", "make "): _SETUP,
    ("CONTRIBUTING.md", ".venv/bin/python -m pytest"): "these tests",
    ("docs/benchmarks.md", "make bench"): "hours",
    ("docs/datasets.md", "recsys run configs/amazon-5core-toys.yaml"): _NETWORK,
    ("docs/export.md", "recsys export ease --format triton"): "Triton; tests/unit/serving/export runs its models",
    ("docs/export.md", "import numpy as np"): "Triton",
    ("docs/guide.md", "recsys train --devices 2"): "an interrupted run, grown data, many runs; tests/cli has all three",
    ("docs/howto/auto.md", "recsys auto"): "half an hour; tests/unit/stages/test_race.py takes a minute",
    ("docs/howto/auto.md", "recsys recommend RUN"): "a run of that race",
    ("docs/howto/cluster.md", "dask scheduler"): _MACHINES,
    ("docs/howto/cluster.md", "recsys doctor --cluster"): _MACHINES,
    ("docs/howto/cluster.md", "recsys recommend RUN"): _MACHINES,
    ("docs/howto/cluster.md", "torchrun"): _MACHINES,
    (
        "docs/howto/cluster.md",
        "pip install 'recsys-cli[s3]'",
    ): "a bucket of S3; tests/e2e/test_object_storage.py has one",
    ("docs/howto/gpus.md", "recsys train configs/ml25m-notebook.yaml"): _GPU,
    ("docs/howto/gpus.md", "pip install 'recsys-cli[gpu]'"): _GPU,
    ("docs/howto/histories.md", "recsys train"): "MovieLens, and a table with histories",
    ("docs/howto/own-data.md", "dataset:"): "a bucket of S3",
    ("docs/howto/serve.md", "recsys compare --feedback"): "visitors of two bundles",
    ("docs/index.md", "pip install -c constraints.txt"): _SETUP,
    ("docs/protocols.md", "recsys ls protocols"): _NETWORK,
    ("docs/security.md", "recsys forget"): "a folder of exports elsewhere; tests/cli has it",
    ("docs/tables.md", "recsys init plays_delta"): "a catalog of Iceberg",
    ("docs/tensorflow.md", "pip install"): _SETUP,
}
"""Page and start of each block with `no-run` → what it needs."""
STARTED = (
    "recsys run configs/demo.yaml model.name=fm train.epochs=1 --quiet",
    "recsys run configs/demo.yaml model.name=ease --quiet",
)
"""Commands before the blocks of every page, which several pages have."""
SERVE = re.compile(r"^recsys serve (.*)$", re.MULTILINE)


LAUNCHER = """\
test ! -f pid || { kill $(cat pid); while kill -0 $(cat pid) 2>/dev/null; do sleep 0.1; done; }
recsys serve "$@" --port 8000 > serve.log 2>&1 &
echo $! > pid
curl -sf --retry 120 --retry-delay 1 --retry-connrefused http://127.0.0.1:8000/bundles > /dev/null || { cat serve.log; exit 1; }
"""
"""Starts a server in place of the one before, and waits for it."""
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
    found: list[Block] = []
    for block in blocks(page):
        if not block.runs or block.language not in {"bash", "python"}:
            continue
        if found and found[-1].language == block.language == "python":  # one program
            found[-1] = replace(block, text=f"{found[-1].text}\n{block.text}")
        else:
            found.append(block)
    return found


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


def write_demo(path: Path) -> None:
    """The demo's config with one epoch, since the blocks prove commands and no quality."""
    short, found = re.subn(r"^  epochs: 10 ", "  epochs: 1 ", (ROOT / path.name / "demo.yaml").read_text(), flags=re.M)
    assert found == 1
    path.mkdir()
    (path / "demo.yaml").write_text(short)


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


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """The environment of blocks: `recsys` is forked from a process that has loaded it."""
    path = os.pathsep.join([str(program().parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Path:
    """A folder with the table and the config, where the first commands were run."""
    folder = tmp_path_factory.mktemp("started")
    write_ratings(folder / "ratings.csv")
    write_demo(folder / "configs")
    for command in STARTED:
        run_block(Block("bash", "", command), folder, environment)
    return folder


def run_block(block: Block, folder: Path, environment: dict[str, str]) -> None:
    command = ["bash", "-euo", "pipefail", "-c"] if block.language == "bash" else [sys.executable, "-c"]
    done = subprocess.run(
        [*command, block.text], cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, f"{block.text}\n{done.stdout}"


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page)], ids=named)
def test_blocks_run(page: Path, tmp_path: Path, started: Path, environment: dict[str, str]) -> None:
    if (package := NEEDS.get(named(page))) and find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    shutil.copytree(started, tmp_path, dirs_exist_ok=True)
    environment = dict(environment)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    (tmp_path / "serve").write_text(LAUNCHER.replace("8000", port))
    try:
        for block in runnable(page):
            if (tmp_path / "pid").exists():
                environment["PID"] = (tmp_path / "pid").read_text().strip()
            text = SERVE.sub(r". ./serve \1", block.text).replace("127.0.0.1:8000", f"127.0.0.1:{port}")
            run_block(replace(block, text=text.replace("curl -s ", "curl -sf ")), tmp_path, environment)
    finally:
        subprocess.run(["bash", "-c", "test ! -f pid || kill $(cat pid)"], cwd=tmp_path, check=False)


def test_every_block_runs_or_has_a_reason() -> None:
    skipped = {
        (named(page), block.text.splitlines()[0]) for page in PAGES for block in blocks(page) if block.flags == NO_RUN
    }
    starts = {
        (name, start): [line for at, line in skipped if at == name and line.startswith(start)]
        for name, start in NOT_RUN
    }
    assert {key: lines for key, lines in starts.items() if len(lines) != 1} == {}
    assert len(skipped) == len(NOT_RUN), skipped - {(name, lines[0]) for (name, _), lines in starts.items()}


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
            own = sections(block.text)
            path.write_text("".join((demo | own).values()))
            assert own, block
            assert own.keys() <= dict(load(path)).keys()


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
