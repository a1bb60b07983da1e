"""Conversion of dataframes to Arrow and back, importing only the library of the user's choice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import pyarrow as pa

from recsys_cli.errors import ConfigError, MissingExtraError

Library = Literal["polars", "pandas", "arrow"]


def to_arrow(frame: Any) -> pa.Table:
    """Return a dataframe as an Arrow table.

    Args:
        frame: A polars or pandas DataFrame, an Arrow table or record batch, a mapping of columns, or an object with
            `to_arrow()` or `__arrow_c_stream__`.

    Raises:
        ConfigError: The type is not supported, or a column mixes types.
    """
    try:
        if isinstance(frame, pa.Table):
            return frame
        if type(frame).__module__.partition(".")[0] == "pandas":
            return pa.Table.from_pandas(frame, preserve_index=False)
        if any(str(kind) == "Object" for kind in getattr(frame, "dtypes", ())):  # polars exports memory addresses
            raise TypeError("a column has the Polars type Object")
        if hasattr(frame, "to_arrow"):
            frame = frame.to_arrow()
        return frame if isinstance(frame, pa.Table) else pa.table(frame)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ConfigError(
            f"cannot read a {type(frame).__name__} as a table: {error}",
            hint="give a polars or pandas DataFrame or an Arrow table, with one type per column",
        ) from error


def from_arrow(table: pa.Table, library: Library = "polars") -> Any:
    """Return an Arrow table as a dataframe of a library.

    Raises:
        ConfigError: The library is unknown.
        MissingExtraError: The library is not installed.
    """
    if library == "arrow":
        return table
    try:
        if library == "polars":
            import polars

            return polars.from_arrow(table)
        if library == "pandas":
            import pandas  # noqa: F401 - the error of pyarrow for a missing pandas is unclear

            return table.to_pandas()
    except ImportError as error:
        raise MissingExtraError(f"{library} is not installed", hint=f"pip install {library}") from error
    raise ConfigError(f"unknown dataframe library {library!r}", hint="choose polars, pandas or arrow")


def rows_to_frame(names: Sequence[str], rows: Iterable[Sequence[Any]], library: Library) -> Any:
    """Return rows of Python values as a dataframe; see `from_arrow`."""
    return from_arrow(pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows]), library)
