"""Synthetic click logs, sessions and impressions with planted structure, and the figures of the best possible model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from recsys_cli.data.generated import Generated, generated_info
from recsys_cli.data.options import parse_options
from recsys_cli.data.source import DatasetInfo, DatasetOptions, FetchRequest, RawTable
from recsys_cli.events import Emit, Progress

_LARGEST = 5_000_000


class _Seeded(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = Field(0, ge=0)
    """Equal options and seed give equal files."""


class ClickOptions(_Seeded):
    """Size and seed of the click log."""

    rows: int = Field(200_000, ge=1, le=_LARGEST)
    """Number of rows, each a shown ad."""


class SessionOptions(_Seeded):
    """Size and seed of the sessions."""

    count: int = Field(20_000, ge=1, le=_LARGEST // 10)
    """Number of sessions, of 4 to 20 items."""
    items: int = Field(500, ge=50, le=5_000)
    """Number of items."""


class ImpressionOptions(_Seeded):
    """Size and seed of the impressions."""

    users: int = Field(2_000, ge=1, le=_LARGEST)
    """Number of users."""
    news: int = Field(400, ge=12, le=5_000)
    """Number of news."""
    count: int = Field(20_000, ge=1, le=_LARGEST // 10)
    """Number of impressions, of 12 news each."""


@dataclass(frozen=True)
class _Kind:
    generator: str
    options: type[_Seeded]
    tables: tuple[str, ...]
    rows: int
    row_bytes: int


KINDS = {
    "synthetic-clicks": _Kind("clicks", ClickOptions, ("interactions",), 200_000, 40),
    "synthetic-sessions": _Kind("sessions", SessionOptions, ("interactions",), 124_000, 6),
    "synthetic-impressions": _Kind("impressions", ImpressionOptions, ("interactions", "news"), 240_000, 5),
}


class SyntheticEvents(Generated[_Seeded]):
    """A generated dataset as a Source.

    Args:
        name: Name in the catalog.
        options: Size and seed.
    """

    @property
    def info(self) -> DatasetInfo:
        """The catalog entry."""
        return info(self._name)

    def fetch(self, request: FetchRequest, emit: Emit) -> dict[str, object]:
        """Write the tables; return the ceiling, the figures of the generator's own probabilities on these rows.

        Raises:
            ConfigError: A mirror or a local file was given.
        """
        import pyarrow.parquet as pq

        from recsys_cli.data import planted_events

        self._refuse_files(request)
        generate: Callable[..., Any] = getattr(planted_events, KINDS[self._name].generator)
        tables, facts = generate(**self._options.model_dump())
        for name, table in tables.items():
            pq.write_table(table, request.folder / f"{name}.parquet")
        rows = tables["interactions"].num_rows
        emit(Progress(f"generate {self._name}", done=rows, total=rows))
        return dict(facts)

    def tables(self, folder: Path) -> tuple[RawTable, ...]:
        """Describe the generated files in `folder`."""
        names = KINDS[self._name].tables
        return tuple(RawTable(name, (folder / f"{name}.parquet",), format="parquet") for name in names)


def info(name: str) -> DatasetInfo:
    """Return the catalog entry of a generated dataset with its default size."""
    kind = KINDS[name]
    return generated_info(name, kind.rows, kind.row_bytes)


def options(name: str) -> DatasetOptions:
    """Return the options."""
    return DatasetOptions(KINDS[name].options)


def source(name: str, options: Mapping[str, object]) -> SyntheticEvents:
    """Open a generated dataset.

    Raises:
        ConfigError: An option is invalid.
    """
    return SyntheticEvents(name, parse_options(KINDS[name].options, options, dataset=name))
