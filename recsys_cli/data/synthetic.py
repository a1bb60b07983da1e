"""Generated datasets: ratings in MovieLens's layout, click logs, sessions and impressions, with the best possible figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from recsys_cli.data.movielens import comma_separated
from recsys_cli.data.options import parse_options
from recsys_cli.data.source import DatasetInfo, DatasetOptions, FetchRequest, RawTable
from recsys_cli.errors import ConfigError
from recsys_cli.events import Emit, Progress

FORMAT = 1  # version of the generators' output for equal options
Options = TypeVar("Options", bound=BaseModel)


class Generated(Generic[Options]):
    """Name and options of a generated dataset.

    Args:
        name: Name in the catalog.
        options: Size and seed.
    """

    def __init__(self, name: str, options: Options) -> None:
        self._name = name
        self._options = options

    def identity(self) -> dict[str, object]:
        """Return the options and the generator's version."""
        return {"generator": FORMAT, **self._options.model_dump()}

    def _refuse_files(self, request: FetchRequest) -> None:
        """Refuse a mirror and a local file.

        Raises:
            ConfigError: One was given.
        """
        if request.from_file or request.mirror:
            raise ConfigError(f"{self._name} is generated: remove --from-file and --mirror")


def generated_info(name: str, rows: int, row_bytes: int) -> DatasetInfo:
    """Return the catalog entry of a generated dataset."""
    size = rows * row_bytes
    return DatasetInfo(name=name, rows=rows, size=size, licence="generated, free to use", access="generated")


ROW_BYTES = 27
NUM_GENRES = 19

SMALL: dict[str, Any] = {"users": 1_200, "items": 1_000, "rows": 250_000}
PRESETS: dict[str, dict[str, Any]] = {
    "synthetic": SMALL,
    "synthetic-small": SMALL,
    "synthetic-25m": {"users": 162_541, "items": 62_423, "rows": 25_000_095, "activity": 1.2},
}


class SyntheticOptions(BaseModel):
    """Size and seed of the synthetic dataset; presets have other defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    users: int = Field(ge=1)
    """Number of users; each has at least one rating, and 20 if `rows` suffices."""
    items: int = Field(ge=2, le=10_000_000)
    """Number of movies, including movies without ratings."""
    rows: int = Field(ge=1)
    """Exact number of ratings."""
    seed: int = Field(0, ge=0)
    """Equal options and seed give equal files."""
    dim: int = Field(4, ge=0)
    """Number of latent factors of users and items, in addition to biases and genre taste."""
    genres: int = Field(NUM_GENRES, ge=1, le=NUM_GENRES)
    """Number of genres."""
    years: int = Field(15, ge=1, le=50)
    """Time span of the ratings in years, to the end of 2023."""
    activity: float = Field(0.8, ge=0, le=3)
    """Spread of user activity: standard deviation of the log number of ratings above the minimum."""

    @model_validator(mode="after")
    def _rows_fit(self) -> SyntheticOptions:
        most = self.users * (self.items // 2)
        if not self.users <= self.rows <= most:
            raise ValueError(
                f"rows has to be {self.users:,} to {most:,}: per user at least one, at most half of the items"
            )
        return self


class Synthetic(Generated[SyntheticOptions]):
    """A generated dataset as a Source.

    Args:
        name: Name of the preset.
        options: Size and seed.
    """

    @property
    def info(self) -> DatasetInfo:
        """The catalog entry."""
        return generated_info(self._name, self._options.rows, ROW_BYTES)

    def fetch(self, request: FetchRequest, emit: Emit) -> dict[str, object]:
        """Write ratings.csv, movies.csv and, up to 2 M rows, truth.parquet with the noise-free scores.

        Returns:
            `ceiling`: AUC of the noise-free score for the label `rating > 3`, the best expected AUC of any model;
            `positives`: share of rows with that label.

        Raises:
            ConfigError: A mirror or a local file was given.
        """
        from recsys_cli.data.planted import PlantedWorld, RatingsWriter, Size, write_movies

        self._refuse_files(request)
        world = PlantedWorld(Size(**self._options.model_dump()))
        write_movies(world, request.folder / "movies.csv")
        with RatingsWriter(world, request.folder) as writer:
            for ratings in world.ratings():
                writer.add(ratings)
                emit(Progress(f"generate {self._name}", done=writer.rows, total=self._options.rows))
        return writer.facts()

    def tables(self, folder: Path) -> tuple[RawTable, ...]:
        """Describe the generated files in `folder`."""
        return comma_separated(folder)


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
    """Return the catalog entry with the default size."""
    if name in PRESETS:
        return generated_info(name, PRESETS[name]["rows"], ROW_BYTES)
    return generated_info(name, KINDS[name].rows, KINDS[name].row_bytes)


def options(name: str) -> DatasetOptions:
    """Return the options, with the defaults of a preset."""
    return DatasetOptions(SyntheticOptions, PRESETS[name]) if name in PRESETS else DatasetOptions(KINDS[name].options)


def source(name: str, options: Mapping[str, object]) -> Synthetic | SyntheticEvents:
    """Open a generated dataset, possibly with another size.

    Raises:
        ConfigError: An option is invalid.
    """
    if name in PRESETS:
        return Synthetic(name, parse_options(SyntheticOptions, {**PRESETS[name], **options}, dataset=name))
    return SyntheticEvents(name, parse_options(KINDS[name].options, options, dataset=name))
