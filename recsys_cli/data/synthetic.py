"""Synthetic ratings of any size in MovieLens's file layout, with the AUC of the best possible model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from recsys_cli.data.generated import Generated, generated_info
from recsys_cli.data.movielens_layouts import comma_separated
from recsys_cli.data.options import parse_options
from recsys_cli.data.source import DatasetInfo, DatasetOptions, FetchRequest, RawTable
from recsys_cli.events import Emit, Progress

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
        from recsys_cli.data.planted import PlantedWorld, Size
        from recsys_cli.data.planted_files import RatingsWriter, write_movies

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


def info(name: str) -> DatasetInfo:
    """Return the catalog entry of a preset."""
    return generated_info(name, PRESETS[name]["rows"], ROW_BYTES)


def options(name: str) -> DatasetOptions:
    """Return the options, with the preset's defaults."""
    return DatasetOptions(SyntheticOptions, PRESETS[name])


def source(name: str, options: Mapping[str, object]) -> Synthetic:
    """Open a preset, possibly with another size.

    Raises:
        ConfigError: An option is invalid.
    """
    return Synthetic(name, parse_options(SyntheticOptions, {**PRESETS[name], **options}, dataset=name))
