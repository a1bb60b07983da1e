"""Releases for the Polars engine on a GPU, checked by package metadata without imports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import requires, version
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from recsys_cli.errors import MissingExtraError
from recsys_cli.packages import installed

PACKAGES = ("cudf-polars-cu13", "cudf-polars-cu12")
"""Package names of cudf-polars, one per CUDA release."""
CURRENT = ("26.10", "<1.45,>=1.35")
"""The supported release of cudf-polars, and its required releases of Polars."""


def problem(device: str) -> MissingExtraError | None:
    """Return the error for a missing or unsupported package on a device, or None."""
    if device != "gpu":
        return None
    found = facts()
    if found["package"] is None:
        return MissingExtraError.for_extra("gpu", what="etl.device=gpu")
    if not found["fits"]:
        return MissingExtraError(
            f"etl.device=gpu: {found['package']} {found['version']} needs polars{found['needs']}, "
            f"but {found['polars']} is installed",
            hint=f"pip install 'polars{found['needs']}'",
        )
    return None


def facts() -> Mapping[str, Any]:
    """Return the installed cudf-polars, and its required and the installed Polars."""
    package = next((name for name in PACKAGES if installed(name)), None)
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
