"""Generative model of the synthetic datasets: preferences, user activity and popularity over time.

A rating is the noise-free score plus noise, rounded to half stars:

    score(u, i, t) = mean + user bias + item bias + taste(u) · genres(i) + factors(u) · factors(i) + drift(i) · t

with t from -0.5 (first day) to 0.5 (last day). Biases and genre taste explain most of the score, so that a few dozen
ratings per user suffice to approach the best possible model.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from recsys_cli.data.synthetic import SyntheticOptions
from recsys_cli.metrics.labels import AUC

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

GENRES = (
    "Drama",
    "Comedy",
    "Thriller",
    "Romance",
    "Action",
    "Documentary",
    "Horror",
    "Adventure",
    "Crime",
    "Sci-Fi",
    "Children",
    "Animation",
    "Mystery",
    "Fantasy",
    "War",
    "Western",
    "Musical",
    "Film-Noir",
    "IMAX",
)
NO_GENRES = "(no genres listed)"
END = 1_704_067_200  # 2024-01-01, seconds since 1970
YEAR = 31_557_600
CHUNK_ROWS = 500_000

# Mean, and standard deviations of the components of a score, in stars.
MEAN = 3.25
USER_BIAS = 0.50
ITEM_BIAS = 0.55
GENRE_BIAS = 0.20
TASTE = 0.50
FACTORS = 0.08
DRIFT = 0.10
NOISE = 0.78
TASTE_DIM = 1  # number of taste directions over genres ("loud or quiet films")


@dataclass(frozen=True)
class Ratings:
    """Ratings of some users, sorted by user and item, without duplicate pairs.

    Attributes:
        user: Index of the user, from 0.
        item: Index of the item, from 0.
        half_stars: The rating in half stars, 1 to 10.
        timestamp: Seconds since 1970.
        score: The noise-free score, in stars.
    """

    user: Ints
    item: Ints
    half_stars: NDArray[np.int8]
    timestamp: Ints
    score: Floats


class PlantedWorld:
    """Items, users and popularity over time of a synthetic dataset.

    Args:
        size: SyntheticOptions and seed; equal values give equal worlds and ratings.
    """

    def __init__(self, size: SyntheticOptions) -> None:
        self.size = size
        # One child seed for the world and one per chunk of users, so that chunks are independent.
        self._seeds = np.random.SeedSequence(size.seed)
        rng = np.random.Generator(np.random.PCG64(self._seeds.spawn(1)[0]))
        self.has_genre = _genre_matrix(rng, size)
        self.item_bias, self.item_vectors = _items(rng, size, self.has_genre)
        self.user_bias = rng.normal(0, USER_BIAS, size.users).astype(np.float32)
        self.user_vectors = rng.normal(0, 1, (size.users, TASTE_DIM + size.dim)).astype(np.float32)
        self.item_drift = rng.normal(0, DRIFT, size.items).astype(np.float32)
        self.movie_id = np.cumsum(rng.integers(1, 6, size.items))  # ids with gaps, as in MovieLens
        self.released = rng.integers(1930, 2024, size.items)
        self.counts = _counts(rng, size)
        self.charts = _charts(rng, size, self.item_bias)

    def ratings(self) -> Iterator[Ratings]:
        """Yield all ratings, in chunks of whole users."""
        bounds = _bounds(self.counts)
        seeds = self._seeds.spawn(len(bounds))
        for (first, last), seed in zip(bounds, seeds, strict=True):
            yield self._chunk(first, last, np.random.Generator(np.random.PCG64(seed)))

    def score(self, user: Ints, item: Ints, time: Floats) -> Floats:
        """Compute noise-free scores in stars.

        Args:
            user: Indices of users, (N,).
            item: Indices of items, (N,).
            time: From -0.5 (first day) to 0.5 (last day), (N,).
        """
        fit = np.einsum("nd,nd->n", self.user_vectors[user], self.item_vectors[item])
        total = MEAN + self.user_bias[user] + self.item_bias[item] + fit + self.item_drift[item] * time
        return total.astype(np.float32)

    def _chart(self, time: NDArray[np.float64]) -> Ints:
        return np.minimum((time * len(self.charts)).astype(np.int64), len(self.charts) - 1)

    def _chunk(self, first: int, last: int, rng: np.random.Generator) -> Ratings:
        user = np.repeat(np.arange(first, last), self.counts[first:last])
        time = _times(rng, self.counts[first:last], user - first)
        item, order = self._choose(rng, user, time)
        user, item, time = user[order], item[order], time[order]
        score = self.score(user, item, (time - 0.5).astype(np.float32))
        rating = score + rng.normal(0, NOISE, len(score)).astype(np.float32)
        half_stars = np.clip(np.rint(rating * 2), 1, 10).astype(np.int8)
        span = self.size.years * YEAR
        timestamp = END - span + (time * (span - 1)).astype(np.int64)
        return Ratings(user, item, half_stars, timestamp, score)

    def _choose(self, rng: np.random.Generator, user: Ints, time: NDArray[np.float64]) -> tuple[Ints, Ints]:
        """Sample an item for each row, without repeats per user; returns the items and the order by (user, item)."""
        chart = self._chart(time)
        item = np.empty(len(user), np.int64)
        repeats = np.arange(len(user))
        for _ in range(8):
            item[repeats] = self._candidates(rng, user[repeats], chart[repeats])
            order, repeats = _order_and_repeats(user - user[0], item, self.size.items)
            if not len(repeats):
                return item, order
        self._fill(rng, user, item, repeats)
        return item, _order_and_repeats(user - user[0], item, self.size.items)[0]

    def _candidates(self, rng: np.random.Generator, user: Ints, chart: Ints) -> Ints:
        """Sample two items by popularity and keep the one closer to the user's taste."""
        rank = _skewed_ranks(rng.random((2, len(user))), self.size)
        pair = self.charts[chart, rank].astype(np.int64)
        taste = self.user_vectors[user, :TASTE_DIM]
        liking = [np.einsum("nd,nd->n", taste, self.item_vectors[side, :TASTE_DIM]) for side in pair]
        return np.where(liking[0] >= liking[1], pair[0], pair[1])

    def _fill(self, rng: np.random.Generator, user: Ints, item: Ints, repeats: Ints) -> None:
        """Sample items for the remaining repeats without replacement, by popularity (exponential keys)."""
        weight = np.empty(self.size.items)
        weight[self.charts[len(self.charts) // 2]] = _weights(self.size)
        for one in np.unique(user[repeats]):
            own = repeats[user[repeats] == one]
            rows = slice(*np.searchsorted(user, [one, one + 1]))
            item[own] = -1
            priority = rng.exponential(size=self.size.items) / weight
            rated = item[rows]
            priority[rated[rated >= 0]] = np.inf
            best = np.argpartition(priority, len(own) - 1)[: len(own)]
            item[own] = best[np.argsort(priority[best])]


def _genre_matrix(rng: np.random.Generator, size: SyntheticOptions) -> NDArray[np.bool_]:
    """Sample the genres of items (items, genres): one or two for most, none for a few."""
    num_genres = rng.choice([0, 1, 2, 3, 4], size.items, p=[0.02, 0.33, 0.35, 0.2, 0.1])
    share = 1 / (np.arange(size.genres) + 2)
    rank = np.argsort(np.argsort(rng.exponential(size=(size.items, size.genres)) / share, axis=1), axis=1)
    return np.asarray(rank < num_genres[:, None])


def _items(rng: np.random.Generator, size: SyntheticOptions, has_genre: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return biases and vectors of items: TASTE_DIM components from genres, `dim` independent ones."""
    genres_each = np.maximum(has_genre.sum(axis=1, keepdims=True), 1)
    pooled = has_genre / np.sqrt(genres_each)
    fit = pooled @ rng.normal(0, 1, (size.genres, TASTE_DIM))
    # With few genres the mean square varies by seed; normalized, so that seeds change tastes but not their strength.
    fit *= TASTE / np.sqrt(TASTE_DIM) / np.maximum(np.sqrt((fit**2).mean(axis=0)), 1e-9)
    own = rng.normal(0, FACTORS / np.sqrt(max(size.dim, 1)), (size.items, size.dim))
    bias = rng.normal(0, ITEM_BIAS, size.items) + pooled @ rng.normal(0, GENRE_BIAS, size.genres)
    bias -= bias.mean()
    return bias.astype(np.float32), np.hstack([fit, own]).astype(np.float32)


def _counts(rng: np.random.Generator, size: SyntheticOptions) -> Ints:
    """Distribute the rows over users, log-normally: at least 20 (if possible), at most half of the items."""
    least, most = min(20, size.rows // size.users), size.items // 2
    weight = rng.lognormal(0, size.activity, size.users)
    low, high = 0.0, size.rows / weight.min()
    for _ in range(80):
        middle = (low + high) / 2
        fits = np.minimum(least + np.floor(middle * weight), most).sum() <= size.rows
        low, high = (middle, high) if fits else (low, middle)
    counts = np.minimum(least + np.floor(low * weight), most).astype(np.int64)
    while (short := size.rows - int(counts.sum())) > 0:
        counts[np.flatnonzero(counts < most)[:short]] += 1
    return counts


def _charts(rng: np.random.Generator, size: SyntheticOptions, item_bias: Floats) -> NDArray[np.int32]:
    """Rank the items by popularity, (half years, items): better items rank higher, each has a peak time."""
    base = rng.normal(0, 1, size.items) + 0.5 * item_bias / item_bias.std()
    peak = rng.random(size.items)
    moments = np.linspace(0, 1, 2 * size.years)
    return np.stack([np.argsort(-(base + np.cos(2 * np.pi * (t - peak))), kind="stable") for t in moments]).astype(
        np.int32
    )


def _offset(size: SyntheticOptions) -> float:
    """Return q of the popularity law 1 / (rank + q)², large enough that not every user rates the first item."""
    return max(size.items / 200, size.rows / size.users)


def _weights(size: SyntheticOptions) -> NDArray[np.float64]:
    return 1 / (np.arange(size.items) + _offset(size)) ** 2


def _skewed_ranks(uniform: NDArray[np.float64], size: SyntheticOptions) -> Ints:
    """Map uniform numbers to ranks of the Zipf-Mandelbrot law with exponent 2, by its closed-form inverse."""
    q = _offset(size)
    rank = 1 / (1 / q - uniform * (1 / q - 1 / (size.items + q))) - q
    return np.clip(rank.astype(np.int64), 0, size.items - 1)


def _times(rng: np.random.Generator, counts: Ints, local: Ints) -> NDArray[np.float64]:
    """Return the time of each row, 0 to 1 over all years: sessions of about 25 ratings, weeks apart."""
    rows = len(local)
    pause = rng.exponential(0.01, rows) * (rng.random(rows) < 0.04)  # about two months of 15 years
    elapsed = np.cumsum(pause + rng.exponential(5e-8, rows))
    first = np.cumsum(counts) - counts
    since = elapsed - elapsed[first][local]
    start = rng.random(len(counts))
    length = since[first + counts - 1]
    squeeze = np.minimum(1, (1 - start) / np.maximum(length, 1e-12))
    return np.minimum(start[local] + since * squeeze[local], 1.0)


def _order_and_repeats(local: Ints, item: Ints, items: int) -> tuple[Ints, Ints]:
    """Return the order of rows by (user, item), and the rows with a repeated pair.

    The row number is part of the sorted integer: faster than argsort, and identical on every machine.
    """
    rows = len(item)
    keys = np.sort((local * items + item) * rows + np.arange(rows))
    order = keys % rows
    pair = keys // rows
    return order, np.sort(order[1:][pair[1:] == pair[:-1]])


def _bounds(counts: Ints) -> list[tuple[int, int]]:
    """Split the users into ranges of about CHUNK_ROWS rows."""
    run = (np.cumsum(counts) - 1) // CHUNK_ROWS
    starts = np.flatnonzero(np.diff(run, prepend=-1))
    return list(zip(starts.tolist(), [*starts[1:].tolist(), len(counts)], strict=True))


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


def write_ratings(world: PlantedWorld, file: Path, report: Callable[[int], None]) -> dict[str, object]:
    """Write ratings.csv in chunks.

    Args:
        world: The source of the ratings.
        file: The file.
        report: Receives the number of rows so far.

    Returns:
        The ceiling and the share of positives, for the label `rating > 3`.
    """
    done = positives = 0
    every = -(-world.size.rows // SAMPLE_ROWS)
    scores, labels = [], []
    with file.open("wb") as target:
        target.write(b"userId,movieId,rating,timestamp\n")
        for ratings in world.ratings():
            columns = {"userId": ratings.user + 1, "movieId": world.movie_id[ratings.item]}
            stars = _STARS.take(pa.array(ratings.half_stars))
            lines = pa.table({**columns, "rating": stars, "timestamp": ratings.timestamp})
            pyarrow.csv.write_csv(lines, target, _CSV)
            liked = ratings.half_stars > 6
            sampled = slice(-done % every, None, every)
            scores.append(ratings.score[sampled])
            labels.append(liked[sampled])
            positives += int(liked.sum())
            done += len(liked)
            report(done)
    best = AUC.of_rows(np.concatenate(labels), np.concatenate(scores))
    ceiling = {"label": "rating > 3", "auc": None if math.isnan(best) else best, "rows": sum(map(len, scores))}
    return {"ceiling": ceiling, "positives": positives / done}
