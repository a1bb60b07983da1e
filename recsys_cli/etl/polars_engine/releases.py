"""The releases that Polars needs for a GPU: known from package metadata, so that nothing is imported to say what is missing."""

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
"""What cudf-polars is called in the package index, by the CUDA release that it is built for."""
CURRENT = ("26.10", "<1.45,>=1.35")
"""The release of cudf-polars that this was written for, and the releases of Polars that it needs."""


def problem(device: str) -> MissingExtraError | None:
    """Return the package that Polars lacks on a device, or None: for the CPU it comes with the core install."""
    if device != "gpu":
        return None
    found = facts()
    if found["package"] is None:
        return MissingExtraError.for_extra("gpu", what="etl.device=gpu")
    if not found["fits"]:
        return MissingExtraError(
            f"etl.device=gpu: {found['package']} {found['version']} needs polars{found['needs']}, and {found['polars']} is here",
            hint=f"pip install 'polars{found['needs']}'",
        )
    return None


def facts() -> Mapping[str, Any]:
    """Return which cudf-polars is installed, which releases of Polars it goes with, and whether that is here."""
    package = next((name for name in PACKAGES if installed(name)), None)
    needs = _needed(requires(package) or []) if package else ""
    have = version("polars")
    return {
        "package": package, "version": installed(package) if package else None, "needs": needs, "polars": have,
        "fits": package is not None and meets(have, needs),
    }  # fmt: skip


def meets(release: str, wanted: str) -> bool:
    """Return whether a release is one of those that a requirement such as `>=1.35,<1.45` names."""
    return SpecifierSet(wanted).contains(Version(release).base_version)


def _needed(requirements: Sequence[str]) -> str:
    return next((str(one.specifier) for one in map(Requirement, requirements) if one.name == "polars"), "")
