"""The world behind the synthetic datasets: who likes what and why, who rates how much, and what is popular when.

A rating is its noise-free score plus noise, rounded to half stars:

    score(u, i, t) = mean + user bias + item bias + taste(u) · genres(i) + factors(u) · factors(i) + drift(i) · t

with t from -0.5 (first day) to 0.5 (last day). Biases and genre taste carry most of it, so that a model which has
seen a few dozen ratings of a user can come near the best that is possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
END = 1_704_067_200  # 2024-01-01, seconds since 1970
YEAR = 31_557_600
CHUNK_ROWS = 500_000

# Standard deviations of the parts of a score, in stars.
MEAN = 3.25
USER_BIAS = 0.50
ITEM_BIAS = 0.55
GENRE_BIAS = 0.20
TASTE = 0.50
FACTORS = 0.08
DRIFT = 0.10
NOISE = 0.78
TASTE_DIM = 1  # tastes differ along few directions ("loud or quiet films"), not in each genre by itself


@dataclass(frozen=True)
class Size:
    """How large a world is, and its seed."""

    users: int
    items: int
    rows: int
    seed: int
    dim: int
    genres: int
    years: int
    activity: float


@dataclass(frozen=True)
class Ratings:
    """Some users' ratings, sorted by user and item; no pair occurs twice.

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
    """Everything that is decided before the first rating: items, users and what is popular when.

    Args:
        size: How large, and which seed. Equal sizes give equal worlds and ratings.
    """

    def __init__(self, size: Size) -> None:
        self.size = size
        # One child for the world, the others for chunks of users: a chunk does not depend on those before it.
        self._seeds = np.random.SeedSequence(size.seed)
        rng = np.random.Generator(np.random.PCG64(self._seeds.spawn(1)[0]))
        self.has_genre = _genre_matrix(rng, size)
        self.item_bias, self.item_vectors = _items(rng, size, self.has_genre)
        self.user_bias = rng.normal(0, USER_BIAS, size.users).astype(np.float32)
        self.user_vectors = rng.normal(0, 1, (size.users, TASTE_DIM + size.dim)).astype(np.float32)
        self.item_drift = rng.normal(0, DRIFT, size.items).astype(np.float32)
        self.movie_id = np.cumsum(rng.integers(1, 6, size.items))  # ids have gaps, as MovieLens's have
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
        """Compute noise-free scores, in stars; `time` runs from -0.5 to 0.5."""
        fit = np.einsum("nd,nd->n", self.user_vectors[user], self.item_vectors[item])
        total = MEAN + self.user_bias[user] + self.item_bias[item] + fit + self.item_drift[item] * time
        return total.astype(np.float32)

    def chances(self, user: int, time: float) -> NDArray[np.float64]:
        """Compute how likely each item is to be what a user rates next, as if the user had rated nothing yet; shape (items,).

        What a user has is never rated again, which leaves the order of the others as it is: no ranking of them can be expected to
        find more of what the user goes on to rate than this one.

        Args:
            user: Index of the user.
            time: From 0 (first day) to 1 (last day).
        """
        drawn = np.empty(self.size.items)
        drawn[self.charts[self._chart(np.array(time))]] = _chances_of_ranks(self.size)
        liking = self.item_vectors[:, :TASTE_DIM] @ self.user_vectors[user, :TASTE_DIM]
        order = np.argsort(liking)
        up_to = np.concatenate([[0], np.cumsum(drawn[order])])
        # Of two draws the one that is liked better is kept, and the first one where both are liked as much.
        worse, no_better = (up_to[np.searchsorted(liking[order], liking, side)] for side in ("left", "right"))
        return np.asarray(drawn * (worse + no_better))

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
        """Choose an item for each row, no item twice for a user; returns it with the order by (user, item)."""
        chart = self._chart(time)
        item = np.empty(len(user), np.int64)
        again = np.arange(len(user))
        for _ in range(8):
            item[again] = self._candidates(rng, user[again], chart[again])
            order, again = _order_and_repeats(user - user[0], item, self.size.items)
            if not len(again):
                return item, order
        self._fill(rng, user, item, again)
        return item, _order_and_repeats(user - user[0], item, self.size.items)[0]

    def _candidates(self, rng: np.random.Generator, user: Ints, chart: Ints) -> Ints:
        """Draw two items by popularity and keep the one nearer to the user's taste."""
        rank = _skewed_ranks(rng.random((2, len(user))), self.size)
        pair = self.charts[chart, rank].astype(np.int64)
        taste = self.user_vectors[user, :TASTE_DIM]
        liking = [np.einsum("nd,nd->n", taste, self.item_vectors[side, :TASTE_DIM]) for side in pair]
        return np.where(liking[0] >= liking[1], pair[0], pair[1])

    def _fill(self, rng: np.random.Generator, user: Ints, item: Ints, again: Ints) -> None:
        """Give rows that keep drawing what their user has already the best of the rest, drawn without replacement."""
        weight = np.empty(self.size.items)
        weight[self.charts[len(self.charts) // 2]] = _weights(self.size)
        for one in np.unique(user[again]):
            mine = again[user[again] == one]
            rows = slice(*np.searchsorted(user, [one, one + 1]))
            item[mine] = -1
            priority = rng.exponential(size=self.size.items) / weight
            held = item[rows]
            priority[held[held >= 0]] = np.inf
            best = np.argpartition(priority, len(mine) - 1)[: len(mine)]
            item[mine] = best[np.argsort(priority[best])]


def _genre_matrix(rng: np.random.Generator, size: Size) -> NDArray[np.bool_]:
    """Decide who has which genres: most items one or two, a few none."""
    how_many = rng.choice([0, 1, 2, 3, 4], size.items, p=[0.02, 0.33, 0.35, 0.2, 0.1])
    share = 1 / (np.arange(size.genres) + 2)
    rank = np.argsort(np.argsort(rng.exponential(size=(size.items, size.genres)) / share, axis=1), axis=1)
    return np.asarray(rank < how_many[:, None])


def _items(rng: np.random.Generator, size: Size, has_genre: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return each item's bias and its vector: TASTE_DIM numbers from its genres, `dim` of its own."""
    genres_each = np.maximum(has_genre.sum(axis=1, keepdims=True), 1)
    pooled = has_genre / np.sqrt(genres_each)
    fit = pooled @ rng.normal(0, 1, (size.genres, TASTE_DIM))
    # A few genres make a mean square of their own; fixed here, so that seeds differ in who likes what, not in how much.
    fit *= TASTE / np.sqrt(TASTE_DIM) / np.maximum(np.sqrt((fit**2).mean(axis=0)), 1e-9)
    own = rng.normal(0, FACTORS / np.sqrt(max(size.dim, 1)), (size.items, size.dim))
    bias = rng.normal(0, ITEM_BIAS, size.items) + pooled @ rng.normal(0, GENRE_BIAS, size.genres)
    bias -= bias.mean()
    return bias.astype(np.float32), np.hstack([fit, own]).astype(np.float32)


def _counts(rng: np.random.Generator, size: Size) -> Ints:
    """Share the rows out among the users: everyone some, a few very many, nobody more than half of the items."""
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


def _charts(rng: np.random.Generator, size: Size, item_bias: Floats) -> NDArray[np.int32]:
    """Rank the items by popularity, for each half year; good items are popular more often, and each has its time."""
    base = rng.normal(0, 1, size.items) + 0.5 * item_bias / item_bias.std()
    peak = rng.random(size.items)
    moments = np.linspace(0, 1, 2 * size.years)
    return np.stack([np.argsort(-(base + np.cos(2 * np.pi * (t - peak))), kind="stable") for t in moments]).astype(
        np.int32
    )


def _offset(size: Size) -> float:
    """Return q of the popularity law 1 / (rank + q)²: large enough that the first item is not rated by everybody."""
    return max(size.items / 200, size.rows / size.users)


def _weights(size: Size) -> NDArray[np.float64]:
    return 1 / (np.arange(size.items) + _offset(size)) ** 2


def _chances_of_ranks(size: Size) -> NDArray[np.float64]:
    """Return how often `_skewed_ranks` gives each rank."""
    bounds = 1 / (np.arange(size.items + 1) + _offset(size))
    return np.asarray(-np.diff(bounds) / (bounds[0] - bounds[-1]))


def _skewed_ranks(uniform: NDArray[np.float64], size: Size) -> Ints:
    """Turn uniform numbers into ranks by the Zipf-Mandelbrot law with exponent 2, whose inverse needs no table."""
    q = _offset(size)
    rank = 1 / (1 / q - uniform * (1 / q - 1 / (size.items + q))) - q
    return np.clip(rank.astype(np.int64), 0, size.items - 1)


def _times(rng: np.random.Generator, counts: Ints, local: Ints) -> NDArray[np.float64]:
    """Return each row's time, 0 to 1 over all years: users come in sessions of some 25 ratings, weeks apart."""
    rows = len(local)
    pause = rng.exponential(0.01, rows) * (rng.random(rows) < 0.04)  # about two months of 15 years
    passed = np.cumsum(pause + rng.exponential(5e-8, rows))
    first = np.cumsum(counts) - counts
    since = passed - passed[first][local]
    start = rng.random(len(counts))
    length = since[first + counts - 1]
    squeeze = np.minimum(1, (1 - start) / np.maximum(length, 1e-12))
    return np.minimum(start[local] + since * squeeze[local], 1.0)


def _order_and_repeats(local: Ints, item: Ints, items: int) -> tuple[Ints, Ints]:
    """Return the rows' order by (user, item), and the rows whose pair an earlier row has.

    The row number is sorted along inside one integer: faster than an argsort, and the same on every machine.
    """
    rows = len(item)
    keys = np.sort((local * items + item) * rows + np.arange(rows))
    order = keys % rows
    pair = keys // rows
    return order, np.sort(order[1:][pair[1:] == pair[:-1]])


def _bounds(counts: Ints) -> list[tuple[int, int]]:
    """Cut the users into runs of about CHUNK_ROWS rows."""
    run = (np.cumsum(counts) - 1) // CHUNK_ROWS
    starts = np.flatnonzero(np.diff(run, prepend=-1))
    return list(zip(starts.tolist(), [*starts[1:].tolist(), len(counts)], strict=True))
