"""Releases compatible with NVTabular 23.08, checked by package metadata without imports."""

from __future__ import annotations

from collections.abc import Mapping

from recsys_cli import packages
from recsys_cli.errors import MissingExtraError

PINS = {
    "nvtabular": "23.8", "merlin-core": "23.8", "merlin-dataloader": "23.8", "pandas": "1.5", "numpy": "1",
    "dask": "2023.7", "distributed": "2023.7",
}  # fmt: skip
"""Package → prefix of its compatible releases; NVTabular fails with others."""


CUDF = {"pandas": "2", "dask": "2024.1", "distributed": "2024.1", "cudf": "24.4"}
"""Overrides and additions to PINS for a GPU: the first cuDF for Python 3.11, and its dependencies."""
_OWN = "give it an environment of its own: python3.11 -m venv nvt; nvt/bin/pip install 'recsys-cli[nvtabular]'"
_CUDF_NAMES = ("cudf", "cudf-cu12", "cudf-cu11")


def problem(device: str = "cpu") -> MissingExtraError | None:
    """Return the error for missing or incompatible packages, or None."""
    if device == "gpu":
        return _problem(
            needed(device), "etl.engine=nvtabular with etl.device=gpu", "see scripts/nvtabular-gpu.Dockerfile"
        )
    if installed("nvtabular") is None:
        return MissingExtraError("etl.engine=nvtabular needs the 'nvtabular' extra (not installed)", hint=_OWN)
    return _problem(PINS, "etl.engine=nvtabular", _OWN)


def _problem(pins: Mapping[str, str], what: str, hint: str | None) -> MissingExtraError | None:
    wrong = [
        f"{package} {pins[package]} is needed and " + (f"{found} is installed" if found else "is not installed")
        for package, found in incompatible(pins).items()
    ]
    if not wrong:
        return None
    return MissingExtraError(f"{what} is incompatible with the installed packages: " + "; ".join(wrong), hint=hint)


def incompatible(pins: Mapping[str, str]) -> dict[str, str | None]:
    """Return the installed release, None for a missing one, of each package that does not match its pin."""
    have = {package: installed(package) for package in pins}
    return {package: found for package, found in have.items() if not f"{found}.".startswith(f"{pins[package]}.")}


def needed(device: str) -> dict[str, str]:
    """Return the release prefix of each package that NVTabular needs on a device."""
    return PINS | CUDF if device == "gpu" else PINS


def installed(package: str) -> str | None:
    """Return the installed release of a package, or None; cuDF under any of its package names."""
    names = _CUDF_NAMES if package == "cudf" else (package,)
    return next(filter(None, map(packages.installed, names)), None)
