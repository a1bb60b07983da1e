"""The built-in engines and clusters, and their availability by package metadata, without an import of their libraries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import requires, version
from importlib.util import find_spec
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from recsys_cli.errors import MissingExtraError
from recsys_cli.packages import installed

CUDF_POLARS = ("cudf-polars-cu13", "cudf-polars-cu12")
"""Package names of cudf-polars, one per CUDA release."""
CURRENT = ("26.10", "<1.45,>=1.35")
"""The supported release of cudf-polars, and its required releases of Polars."""
PINS = {
    "nvtabular": "23.8", "merlin-core": "23.8", "merlin-dataloader": "23.8", "pandas": "1.5", "numpy": "1",
    "dask": "2023.7", "distributed": "2023.7",
}  # fmt: skip
"""Package → prefix of its compatible releases; NVTabular fails with others."""
GPU_PINS = PINS | {"pandas": "2", "dask": "2024.1", "distributed": "2024.1", "cudf": "24.4"}
"""The same for a GPU: the first cuDF for Python 3.11, and its dependencies."""
_OWN = "give it an environment of its own: python3.11 -m venv nvt; nvt/bin/pip install 'recsys-cli[nvtabular]'"
_CUDF_NAMES = ("cudf", "cudf-cu12", "cudf-cu11")


@dataclass(frozen=True)
class EngineInfo:
    """Summary and availability of an engine.

    Attributes:
        rank: Preference of `auto`: the highest rank among the available engines wins.
        missing: Returns the missing package for a device ("cpu" or "gpu"), or None.
    """

    summary: str
    rank: int
    missing: Callable[[str], MissingExtraError | None]


def problem_of_polars(device: str) -> MissingExtraError | None:
    """Return the error for a missing or unsupported package on a device, or None."""
    if device != "gpu":
        return None
    found = polars_releases()
    if found["package"] is None:
        return MissingExtraError.for_extra("gpu", what="etl.device=gpu")
    if not found["fits"]:
        return MissingExtraError(
            f"etl.device=gpu: {found['package']} {found['version']} needs polars{found['needs']}, "
            f"but {found['polars']} is installed",
            hint=f"pip install 'polars{found['needs']}'",
        )
    return None


def polars_releases() -> Mapping[str, Any]:
    """Return the installed cudf-polars, and its required and the installed Polars."""
    package = next((name for name in CUDF_POLARS if installed(name)), None)
    needs = _needed(requires(package) or []) if package else ""
    have = version("polars")
    return {
        "package": package, "version": installed(package) if package else None, "needs": needs, "polars": have,
        "fits": package is not None and satisfies(have, needs),
    }  # fmt: skip


def satisfies(release: str, requirement: str) -> bool:
    """Whether a release fits a requirement such as `>=1.35,<1.45`."""
    return SpecifierSet(requirement).contains(Version(release).base_version)


def _needed(requirements: Sequence[str]) -> str:
    return next((str(one.specifier) for one in map(Requirement, requirements) if one.name == "polars"), "")


def problem_of_nvtabular(device: str = "cpu") -> MissingExtraError | None:
    """Return the error for missing or incompatible packages, or None."""
    if device == "gpu":
        return _problem(
            pins(device), "etl.engine=nvtabular with etl.device=gpu", "see scripts/nvtabular-gpu.Dockerfile"
        )
    if installed_pin("nvtabular") is None:
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
    have = {package: installed_pin(package) for package in pins}
    return {package: found for package, found in have.items() if not f"{found}.".startswith(f"{pins[package]}.")}


def pins(device: str) -> dict[str, str]:
    """Return the release prefix of each package that NVTabular needs on a device."""
    return GPU_PINS if device == "gpu" else PINS


def installed_pin(package: str) -> str | None:
    """Return the installed release of a package, or None; cuDF under any of its package names."""
    names = _CUDF_NAMES if package == "cudf" else (package,)
    return next(filter(None, map(installed, names)), None)


OWN: dict[str, EngineInfo] = {
    "polars": EngineInfo("Polars, on the CPU or, through cudf-polars, on a GPU.", 10, problem_of_polars),
    "nvtabular": EngineInfo("NVTabular of NVIDIA Merlin: pandas on a CPU, cuDF on a GPU.", 0, problem_of_nvtabular),
}


def best(device: str) -> str:
    """Return the engine of `auto` on a device: the highest rank of the available engines, or of all if none is."""
    ranked = sorted(OWN, key=lambda name: OWN[name].rank, reverse=True)
    return next((name for name in ranked if OWN[name].missing(device) is None), ranked[0])


def missing_of_cluster(cluster: str) -> MissingExtraError | None:
    """Return the missing package for a kind of cluster, or None."""
    if find_spec("distributed") is None:
        return MissingExtraError.for_extra("dask", what=f"etl.cluster={cluster}")
    if cluster == "local_cuda" and find_spec("dask_cuda") is None:
        return MissingExtraError.for_extra("dask-cuda", what="etl.cluster=local_cuda")
    return None
