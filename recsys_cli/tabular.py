"""Results as dataframes: of Polars or pandas, as Arrow tables, and as HTML in notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import pyarrow as pa

from recsys_cli.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

Library = Literal["polars", "pandas", "arrow"]
_SHOWN = 200
"""Rows in a notebook."""


class Tabular:
    """A result with a table: as a dataframe, and as HTML in notebooks."""

    def _to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        raise NotImplementedError

    @overload
    def to_frame(self, library: Literal["polars"] = "polars") -> pl.DataFrame: ...
    @overload
    def to_frame(self, library: Literal["pandas"]) -> pd.DataFrame: ...
    @overload
    def to_frame(self, library: Literal["arrow"]) -> pa.Table: ...

    def to_frame(self, library: Library = "polars") -> Any:
        """Return the rows as a DataFrame of `polars` or `pandas`, or as an Arrow table (`arrow`)."""
        return from_arrow(self._to_arrow(), library)

    def _repr_html_(self) -> str:
        import polars as pl

        with pl.Config(tbl_rows=_SHOWN, fmt_str_lengths=80, tbl_hide_column_data_types=True):
            return str(self.to_frame()._repr_html_())


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


def rows_to_arrow(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> pa.Table:
    """Return rows of Python values as a table."""
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])
