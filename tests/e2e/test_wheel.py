"""The built wheel, installed in a clean environment, runs the demo from an empty folder."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("recsys_cli", "configs", "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build it from a copy, so that nothing is left in the checkout."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source / name)
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(out), str(source))
    (built,) = out.glob("*.whl")
    return built


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, text=True, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def clean_environment(folder: Path, wheel: Path) -> Path:
    """Install the wheel into a new venv that sees the dependencies, and not this checkout; return its scripts."""
    venv.create(folder)
    scripts = folder / "bin"
    pip("--python", str(scripts / "python"), "install", "--no-deps", "--no-index", str(wheel))
    (site,) = folder.glob("lib/python*/site-packages")
    found = [importlib.util.find_spec(name) for name in ("typer", "polars", "torch")]
    shared = {str(Path(spec.origin).parents[1]) for spec in found if spec is not None and spec.origin is not None}
    (site / "shared.pth").write_text("\n".join(sorted(shared)))  # paths in it are not searched for .pth files
    return scripts


@pytest.mark.slow
def test_wheel_runs_the_demo_from_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    scripts = clean_environment(tmp_path / "venv", wheel)
    empty = tmp_path / "empty"
    empty.mkdir()
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    where = [scripts / "python", "-c", "import recsys_cli; print(recsys_cli.__file__)"]
    imported = subprocess.run(where, cwd=empty, env=environment, text=True, capture_output=True, check=True).stdout
    assert imported.startswith(str(tmp_path))

    command = [scripts / "recsys", "--json", "run", "configs/demo.yaml", "train.epochs=1", "evaluate.bootstrap=50"]
    done = subprocess.run(command, cwd=empty, env=environment, text=True, capture_output=True, timeout=300)

    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)
    assert len(list(empty.glob("workspace/runs/*/report.html"))) == 1


def test_editable_install_is_a_path_that_type_checkers_find(tmp_path: Path) -> None:
    for name in SOURCES:
        (tmp_path / name).symlink_to(ROOT / name)
    venv.create(tmp_path / "venv")
    where = ["--prefix", str(tmp_path / "venv"), "--no-deps", "--no-build-isolation", "--no-index"]
    pip("install", *where, "--ignore-installed", "--editable", str(tmp_path))
    (hook,) = tmp_path.glob("venv/lib/python*/site-packages/__editable__.recsys_cli-*.pth")
    assert [Path(line) for line in hook.read_text().splitlines()] == [tmp_path]


@pytest.mark.slow
def test_wheel_has_no_tests_and_all_package_data(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if not name.endswith("/")}
    data = {path for suffix in ("html", "j2", "css", "yaml") for path in ROOT.glob(f"recsys_cli/**/*.{suffix}")}
    code = set(ROOT.glob("recsys_cli/**/*.py"))
    assert {str(path.relative_to(ROOT)) for path in code | data} <= names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"recsys_cli"}
    assert {Path(name).name for name in names if "/configs/" in name and name.endswith(".yaml")} == {
        path.name for path in ROOT.glob("configs/*.yaml")
    }
