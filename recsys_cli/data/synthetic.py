"""Generated datasets: ratings in MovieLens's layout, click logs, sessions and impressions, with the best possible figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, model_validator

from recsys_cli.data.options import parse_options
from recsys_cli.data.published import described
from recsys_cli.data.source import DatasetInfo, DatasetOptions, FetchRequest, RawTable
from recsys_cli.errors import ConfigError
from recsys_cli.events import Emit, Progress
from recsys_cli.frozen import Frozen

FORMAT = 1  # version of the generators' output for equal options
NUM_GENRES = 19


class SyntheticOptions(Frozen):
    """Size and seed of the synthetic dataset; presets have other defaults."""

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


_LARGEST = 5_000_000


class _Seeded(Frozen):
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
    """A generated dataset; `rows` is the default number, None for an option of that name."""

    generator: str
    options: type[BaseModel]
    row_bytes: int
    rows: int | None = None
    tables: tuple[str, ...] = ("interactions",)
    preset: dict[str, Any] = field(default_factory=dict)


_SMALL = _Kind("ratings", SyntheticOptions, 27, preset={"users": 1_200, "items": 1_000, "rows": 250_000})
KINDS = {
    "synthetic": _SMALL,
    "synthetic-small": _SMALL,
    "synthetic-25m": _Kind(
        "ratings", SyntheticOptions, 27, preset={"users": 162_541, "items": 62_423, "rows": 25_000_095, "activity": 1.2}
    ),
    "synthetic-clicks": _Kind("clicks", ClickOptions, 40),
    "synthetic-sessions": _Kind("sessions", SessionOptions, 6, rows=124_000),
    "synthetic-impressions": _Kind("impressions", ImpressionOptions, 5, rows=240_000, tables=("interactions", "news")),
}


class Generated:
    """A generated dataset as a Source."""

    def __init__(self, name: str, options: BaseModel) -> None:
        self._name, self._kind, self._options = name, KINDS[name], options

    @property
    def info(self) -> DatasetInfo:
        """The catalog entry."""
        rows = self._kind.rows or self._options.model_dump()["rows"]
        size = rows * self._kind.row_bytes
        return DatasetInfo(self._name, rows, size, licence="generated, free to use", access="generated")

    def identity(self) -> dict[str, object]:
        """Return the options and the generator's version."""
        return {"generator": FORMAT, **self._options.model_dump()}

    def fetch(self, request: FetchRequest, emit: Emit) -> dict[str, object]:
        """Write the tables; return the ceiling, the figures of the generator's own probabilities on these rows.

        Raises:
            ConfigError: A mirror or a local file was given.
        """
        if request.from_file or request.mirror:
            raise ConfigError(f"{self._name} is generated: remove --from-file and --mirror")
        if self._kind.generator == "ratings":
            return self._write_ratings(request.folder, emit)
        import pyarrow.parquet as pq

        from recsys_cli.data import planted_events

        generate: Callable[..., Any] = getattr(planted_events, self._kind.generator)
        tables, facts = generate(**self._options.model_dump())
        for name, table in tables.items():
            pq.write_table(table, request.folder / f"{name}.parquet")
        rows = tables["interactions"].num_rows
        emit(Progress(f"generate {self._name}", done=rows, total=rows))
        return dict(facts)

    def _write_ratings(self, folder: Path, emit: Emit) -> dict[str, object]:
        from recsys_cli.data.planted import PlantedWorld, write_movies, write_ratings

        assert isinstance(self._options, SyntheticOptions)
        world, rows = PlantedWorld(self._options), self._options.rows
        write_movies(world, folder / "movies.csv")
        task = f"generate {self._name}"
        return write_ratings(world, folder / "ratings.csv", lambda done: emit(Progress(task, done, rows)))

    def tables(self, folder: Path) -> tuple[RawTable, ...]:
        """Describe the generated files in `folder`."""
        if self._kind.generator == "ratings":
            return described("movielens-25m").tables_in(folder, ("",))
        return tuple(RawTable(name, (folder / f"{name}.parquet",), format="parquet") for name in self._kind.tables)


def info(name: str) -> DatasetInfo:
    """Return the catalog entry with the default size."""
    return source(name, {}).info


def options(name: str) -> DatasetOptions:
    """Return the options, with the defaults of a preset."""
    return DatasetOptions(KINDS[name].options, KINDS[name].preset)


def source(name: str, options: Mapping[str, object]) -> Generated:
    """Open a generated dataset, possibly with another size.

    Raises:
        ConfigError: An option is invalid.
    """
    kind = KINDS[name]
    return Generated(name, parse_options(kind.options, {**kind.preset, **options}, dataset=name))
