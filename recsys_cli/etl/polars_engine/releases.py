"""The releases that Polars needs for a GPU: known from package metadata, so that nothing is imported to say what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

from recsys_cli.errors import MissingExtraError

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
    package = next((name for name in PACKAGES if _version(name)), None)
    needs = _needed(requires(package) or []) if package else ""
    have = version("polars")
    return {
        "package": package, "version": _version(package) if package else None, "needs": needs, "polars": have,
        "fits": package is not None and meets(have, needs),
    }  # fmt: skip


def meets(release: str, wanted: str) -> bool:
    """Return whether a release is one of those that a requirement such as `>=1.35,<1.45` names."""
    have = _numbers(release)
    for condition in filter(None, wanted.split(",")):
        limit = _numbers(condition.lstrip("<>=!~ "))
        holds = {
            ">=": have >= limit, "<=": have <= limit, "==": have[: len(limit)] == limit, "!=": have != limit,
            "~=": have >= limit and have[: len(limit) - 1] == limit[:-1], ">": have > limit, "<": have < limit,
        }  # fmt: skip
        sign = next(sign for sign in holds if condition.strip().startswith(sign))
        if not holds[sign]:
            return False
    return True


def _needed(requirements: Sequence[str]) -> str:
    for requirement in requirements:
        name = requirement.partition(";")[0].strip()
        if name.startswith("polars") and name[6:7] in {"<", ">", "=", "!", "~", " ", "("}:
            return name[6:].strip(" ()").replace(" ", "")
    return ""


def _numbers(release: str) -> tuple[int, ...]:
    found = []
    for part in release.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        found.append(int(digits))
    return tuple(found)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
