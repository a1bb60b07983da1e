"""NVTabular engine: compatible releases, and conversion of raw columns."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import metadata
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from recsys_cli.errors import DataError
from recsys_cli.etl.engine import PINS
from recsys_cli.etl.nvtabular_engine import NVTabularEngine
from recsys_cli.ops.nvtabular import plain
from recsys_cli.ops.values import from_arrow

RIGHT = {
    "nvtabular": "23.8.0", "merlin-core": "23.8.0", "merlin-dataloader": "23.8.0", "pandas": "1.5.3", "numpy": "1.26.4",
    "dask": "2023.7.1", "distributed": "2023.7.1",
}  # fmt: skip


def _install(monkeypatch: pytest.MonkeyPatch, packages: dict[str, str]) -> None:
    def version(package: str) -> str:
        if package not in packages:
            raise PackageNotFoundError(package)
        return packages[package]

    monkeypatch.setattr(metadata, "version", version)


def test_missing_is_none_for_compatible_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, RIGHT)
    assert NVTabularEngine.missing() is None


def test_missing_names_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, {})
    error = NVTabularEngine.missing()
    assert error is not None
    assert error.exit_code == 5
    assert "not installed" in error.message
    assert error.hint is not None
    assert error.hint.endswith("python3.11 -m venv nvt; nvt/bin/pip install 'recsys-cli[nvtabular]'")


def test_missing_names_each_incompatible_package(monkeypatch: pytest.MonkeyPatch) -> None:
    without = {package: version for package, version in RIGHT.items() if package != "distributed"}
    _install(monkeypatch, without | {"numpy": "2.1.0", "pandas": "2.2.3"})
    error = NVTabularEngine.missing()
    assert error is not None
    assert "numpy 1 is needed and 2.1.0 is installed" in error.message
    assert "pandas 1.5 is needed and 2.2.3 is installed" in error.message
    assert "distributed 2023.7 is needed and is not installed" in error.message
    assert "merlin" not in error.message
    assert error.hint is not None
    assert "nvtabular" in error.hint


def test_pins_are_those_of_the_extra() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    extra = dict(line.split("==") for line in project["project"]["optional-dependencies"]["nvtabular"] if "==" in line)
    assert {package: extra[package] for package in PINS} == RIGHT
    for package, release in PINS.items():
        assert extra[package].startswith(release)


def test_missing_imports_nothing_heavy() -> None:
    program = (
        "import sys; from recsys_cli.etl.nvtabular_engine import NVTabularEngine as E; E.missing();"
        "print([name for name in ('nvtabular', 'pandas', 'dask', 'merlin') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def as_plain(values: pa.Array, name: str = "c") -> tuple[pa.Array, list[bool]]:
    data, nulls = plain(from_arrow(values), values.type, name)
    return data, nulls.tolist()


def test_plain_keeps_integers_next_to_nulls() -> None:
    data, nulls = as_plain(pa.array([2**63 - 1, None, -(2**63)]))
    assert data.to_pylist() == [2**63 - 1, 0, -(2**63)]
    assert nulls == [False, True, False]


def test_plain_converts_nan_to_null_and_has_one_zero() -> None:
    data, nulls = as_plain(pa.array([-0.0, float("nan"), 1.5], pa.float32()))
    assert not np.signbit(data.to_numpy()).any()
    assert data.type == pa.float32()
    assert nulls == [False, True, False]


@pytest.mark.parametrize("kind", [pa.decimal128(5, 2), pa.binary(), pa.struct([("a", pa.int64())])])
def test_plain_refuses_other_types_and_names_the_other_engine(kind: pa.DataType) -> None:
    with pytest.raises(DataError, match=r"column price has type .*, unsupported by etl.engine=nvtabular") as caught:
        as_plain(pa.array([None], kind), "price")
    assert caught.value.hint == "use etl.engine=polars"


def test_plain_refuses_strings_with_nul() -> None:
    with pytest.raises(DataError, match="column name has strings with a NUL"):
        as_plain(pa.array(["a", "a\0b"]), "name")
