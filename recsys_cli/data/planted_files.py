"""Files of a synthetic dataset in MovieLens's layout, and the ceiling of its metrics."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from recsys_cli.data.movielens_layouts import NO_GENRES
from recsys_cli.data.planted import GENRES, PlantedWorld, Ratings
from recsys_cli.metrics.labels import AUC

TRUTH_ROWS = 2_000_000
SAMPLE_ROWS = 1_000_000
_STARS = pa.array([f"{half / 2:.1f}" for half in range(11)])  # MovieLens writes 4.0, not 4
_CSV = pyarrow.csv.WriteOptions(include_header=False, quoting_style="none")
# Commas, quotes and non-ASCII characters, as in real titles.
_TITLES = ("Planted Film {}", "Planted Film {}, The", 'The "Planted" Film {}', "Le Film Planté {}")


def write_movies(world: PlantedWorld, file: Path) -> None:
    """Write movies.csv, with titles made from the row number."""
    names = np.array(GENRES[: world.size.genres])
    with file.open("w", encoding="utf-8", newline="") as target:
        writer = csv.writer(target, lineterminator="\n")
        writer.writerow(["movieId", "title", "genres"])
        for row, (movie_id, year) in enumerate(zip(world.movie_id.tolist(), world.released.tolist(), strict=True)):
            title = f"{_TITLES[row % len(_TITLES)].format(row)} ({year})"
            writer.writerow([movie_id, title, "|".join(sorted(names[world.has_genre[row]])) or NO_GENRES])


class RatingsWriter:
    """Writes ratings.csv in chunks and collects scores for the ceiling; a context manager.

    Args:
        world: The source of the ratings.
        folder: Folder for ratings.csv and, up to TRUTH_ROWS rows, truth.parquet.
    """

    def __init__(self, world: PlantedWorld, folder: Path) -> None:
        self.rows = 0
        self._world = world
        self._folder = folder
        self._file = (folder / "ratings.csv").open("wb")
        self._file.write(b"userId,movieId,rating,timestamp\n")
        self._truth: list[pa.Table] = []
        self._stride = -(-world.size.rows // SAMPLE_ROWS)
        self._sample: list[tuple[NDArray[np.float32], NDArray[np.bool_]]] = []
        self._positives = 0

    def add(self, ratings: Ratings) -> None:
        """Append a chunk of ratings."""
        table = pa.table({"userId": ratings.user + 1, "movieId": self._world.movie_id[ratings.item]})
        stars = _STARS.take(pa.array(ratings.half_stars))
        lines = table.append_column("rating", stars).append_column("timestamp", pa.array(ratings.timestamp))
        pyarrow.csv.write_csv(lines, self._file, _CSV)
        if self._world.size.rows <= TRUTH_ROWS:
            truth = table.append_column("timestamp", pa.array(ratings.timestamp))
            self._truth.append(truth.append_column("score", pa.array(ratings.score)))
        liked = ratings.half_stars > 6
        sampled = slice(-self.rows % self._stride, None, self._stride)
        self._sample.append((ratings.score[sampled], liked[sampled]))
        self._positives += int(liked.sum())
        self.rows += len(liked)

    def facts(self) -> dict[str, object]:
        """Return the ceiling and the share of positives, for the label `rating > 3`."""
        score = np.concatenate([score for score, _ in self._sample])
        liked = np.concatenate([liked for _, liked in self._sample])
        best = AUC.of_rows(liked, score)
        return {
            "ceiling": {"label": "rating > 3", "auc": None if math.isnan(best) else best, "rows": len(score)},
            "positives": self._positives / self.rows,
        }

    def __enter__(self) -> RatingsWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        if error is None and self._truth:
            pyarrow.parquet.write_table(pa.concat_tables(self._truth), self._folder / "truth.parquet")
