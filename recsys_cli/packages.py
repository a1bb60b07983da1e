"""Installed packages: their releases, from metadata without imports, and their import by the first use."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
    from scipy import optimize, special
else:
    httpx, np, npt, pl = Lazy("httpx"), Lazy("numpy"), Lazy("numpy.typing"), Lazy("polars")
    pa, pc, pq = Lazy("pyarrow"), Lazy("pyarrow.compute"), Lazy("pyarrow.parquet")
    optimize, special = Lazy("scipy.optimize"), Lazy("scipy.special")


def leave_out_pandas() -> None:
    """Convert no pandas objects to Arrow, unless pandas is loaded: pyarrow imports it with the first array to know them."""
    if "pandas" not in sys.modules:
        with without("pandas"):
            pa.array([])  # the only search


@contextmanager
def without(module: str) -> Iterator[None]:
    """Refuse the import of a module that others import if they can."""
    refusal = _Refusal(module)
    sys.meta_path.insert(0, refusal)
    try:
        yield
    finally:
        sys.meta_path.remove(refusal)


class _Refusal:
    def __init__(self, module: str) -> None:
        self.module = module

    def find_spec(self, name: str, *_: object) -> None:
        """Refuse the module; None leaves others to the next finder."""
        if name == self.module:
            raise ModuleNotFoundError(f"{name} is left out", name=name)


def installed(package: str) -> str | None:
    """Return the installed release of a package, or None."""
    from importlib import metadata  # slow to import, and --help needs no release

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
