"""Installed packages: their releases, from metadata without imports, and their import by the first use."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any


class Lazy(ModuleType):
    """Module imported by the first use of an attribute."""

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the module."""
        return getattr(import_module(self.__name__), name)


if TYPE_CHECKING:
    import httpx
    import polars as pl
    import pyarrow.compute as pc
else:
    httpx, pl, pc = Lazy("httpx"), Lazy("polars"), Lazy("pyarrow.compute")


def installed(package: str) -> str | None:
    """Return the installed release of a package, or None."""
    from importlib import metadata  # slow to import, and --help needs no release

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
