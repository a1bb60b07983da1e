"""Installed packages: their releases, from metadata without imports, and their import by the first use."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any


class Lazy(ModuleType):
    """Module imported by the first use of an attribute, which it keeps."""

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the module."""
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import httpx
    import numpy as np
    import numpy.typing as npt
    import polars as pl
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
else:
    httpx, np, npt, pl = Lazy("httpx"), Lazy("numpy"), Lazy("numpy.typing"), Lazy("polars")
    pa, pc, pq = Lazy("pyarrow"), Lazy("pyarrow.compute"), Lazy("pyarrow.parquet")


def leave_out_pandas() -> None:
    """Convert no pandas objects to Arrow, unless pandas is loaded: pyarrow imports it with the first array to know them."""
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _NoPandas)
        try:
            pa.array([])  # the only search
        finally:
            sys.meta_path.remove(_NoPandas)


class _NoPandas:
    """Finder of modules that refuses pandas."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        """Refuse pandas; None leaves other modules to the next finder."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is left out", name=name)


def installed(package: str) -> str | None:
    """Return the installed release of a package, or None."""
    from importlib import metadata  # slow to import, and --help needs no release

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
