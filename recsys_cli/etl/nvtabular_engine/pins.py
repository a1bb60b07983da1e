"""Which releases NVTabular 23.08 runs beside: known from package metadata, because the wrong ones fail at its import."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from recsys_cli.errors import MissingExtraError

PINS = {
    "nvtabular": "23.8", "merlin-core": "23.8", "merlin-dataloader": "23.8", "pandas": "1.5", "numpy": "1",
    "dask": "2023.7", "distributed": "2023.7",
}  # fmt: skip
"""Package → the release, as far as it matters, outside of which NVTabular was seen to fail."""


def problem() -> MissingExtraError | None:
    """Return what is missing or of the wrong release for NVTabular, with the install command, or None; imports nothing."""
    missing = MissingExtraError.for_extra("nvtabular", what="etl.engine=nvtabular")
    if _installed("nvtabular") is None:
        return missing
    have = {package: _installed(package) for package in PINS}
    wrong = [
        f"{package} {PINS[package]} is needed and " + (f"{found} is installed" if found else "is not installed")
        for package, found in have.items()
        if found is None or not f"{found}.".startswith(f"{PINS[package]}.")
    ]
    if not wrong:
        return None
    return MissingExtraError(
        "etl.engine=nvtabular cannot run beside these packages: " + "; ".join(wrong), hint=missing.hint
    )


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
