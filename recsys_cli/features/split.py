"""Splits: functions of row numbers, users and times only, hence independent of engines and partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, ClassVar, Literal, TypeAlias, get_args

from pydantic import Field, model_validator

from recsys_cli.features.hashing import hash_counters, mix
from recsys_cli.features.order import Ends, Ints, LatestTwo, TimeBoundary, tie_keys
from recsys_cli.frozen import Frozen
from recsys_cli.packages import np, npt

SPLITS = ("train", "valid", "test")
TRAIN, VALID, TEST = range(3)

Codes: TypeAlias = "npt.NDArray[np.uint8]"
Columns = Callable[[], Iterator[Mapping[str, Ints]]]
_SPLIT_STREAM = 1
_LEAKAGE = (
    "splitting {} leaves interactions in train that are later than some in valid and test: "
    "the metrics are comparable with papers that do the same, and optimistic for a live system; split.method=temporal is not"
)


class _Split(Frozen):
    reads: ClassVar[tuple[Literal["user", "timestamp", "impression"], ...]] = ()
    """Input columns of `codes`, those that the data has."""
    keeps_impressions: ClassVar[bool] = False
    """Whether the rows of an impression share a split."""
    in_order: ClassVar[bool | None] = False
    """Whether the splits follow each other in time; None if the data decides."""
    holdout: ClassVar[Literal["latest", "last", "random"] | None] = None
    """Hold-out of train rows that resembles the split (`model.holdout.method` of two-stage)."""
    leakage: ClassVar[str | None] = None
    """Warning about temporal leakage for readers of the metrics, or None."""
    more_valid: ClassVar[str] = "set split.valid=0.1 and run recsys etl CONFIG"
    """What gives data without valid rows some."""

    tie_seed: Annotated[int, Field(ge=0)] | None = Field(None, exclude_if=lambda seed: seed is None)
    """Seed of the order of rows with equal times, in the split and in the histories of models. None: the order of the file."""

    def codes(self, columns: Columns) -> Iterator[Codes]:
        """Yield the codes of each batch of rows, indices into SPLITS, in memory independent of the number of rows.

        `columns()` iterates over all batches of rows, with the columns of `reads` as integers. `user` is a numbering
        of the users from 0 that depends only on the raw input (order of first appearance), as is `impression`, -1 without an id.
        With `tie_seed` they have `number`, the row number in the raw input.
        """
        raise NotImplementedError

    def _keys(self, batch: Mapping[str, Ints]) -> Ints:
        """Return the keys that order ties, equal within an impression; zeros for the order of the file."""
        if self.tie_seed is None:
            return np.zeros_like(batch["timestamp"])
        keys, shown = tie_keys(batch["number"], self.tie_seed), batch.get("impression")
        return keys if shown is None else np.where(shown < 0, keys, tie_keys(shown, self.tie_seed, 1))


class _Fractions(_Split):
    valid: float = Field(0.2, ge=0, lt=1)
    """Share of the rows for validation, the choice of the best epoch."""
    test: float = Field(0.1, ge=0, lt=1)
    """Share of the rows for the test metrics, never used for choices. 0 for none: `recsys evaluate` then takes valid, and
    reports if its rows chose the epoch."""

    @model_validator(mode="after")
    def _leaves_train(self) -> _Fractions:
        if self.valid + self.test >= 1:
            raise ValueError(f"valid + test is {self.valid + self.test:g}, which leaves nothing to train on")
        return self


class RandomSplit(_Fractions):
    """Random rows, by a hash of (seed, row number): the recipe of the Merlin notebooks, reproducible."""

    leakage = _LEAKAGE.format("at random")
    holdout = "random"
    method: Literal["random"] = "random"
    seed: int = Field(42, ge=0)
    """Seed of the split."""

    def assign_rows(self, rows: npt.NDArray[np.uint64]) -> Codes:
        """Return the split codes of row numbers; independent of other rows."""
        hashes = hash_counters(rows, mix(self.seed, _SPLIT_STREAM))
        return _threshold(hashes, valid=self.valid, test=self.test)


class TemporalSplit(_Fractions):
    """Global temporal split: the earliest rows for train, the latest for test; ties by row number or hash, by impression."""

    reads = ("timestamp", "impression")
    keeps_impressions = in_order = True
    holdout = "latest"
    method: Literal["temporal"] = "temporal"

    def codes(self, columns: Columns) -> Iterator[Codes]:
        """Yield the split codes of each batch of rows."""
        num_rows = sum(len(batch["timestamp"]) for batch in columns())
        # Rounded, because 10 * (1 - 0.2 - 0.1) may be 7.000000000000001 or 6.999999999999999.
        ranks = (int(round(num_rows * share, 6)) for share in (1 - self.valid - self.test, 1 - self.test))
        boundaries = [TimeBoundary.at(lambda: (batch["timestamp"] for batch in columns()), rank) for rank in ranks]
        for one in boundaries if self.tie_seed is not None else ():
            tied = np.concatenate([self._keys(batch)[batch["timestamp"] == one.time] for batch in columns()])
            one.key = int(np.sort(tied)[one.before]) if one.before < len(tied) else None
        for batch in columns():
            keys, shown = self._keys(batch), batch.get("impression")
            later, latest = (one.reached(batch["timestamp"], keys, shown) for one in boundaries)
            yield (later.astype(np.uint8) + latest).astype(np.uint8)


class LeaveLastOut(_Split):
    """Leave-last-out: each user's last row for test, the one before for valid; users with fewer than three rows stay in train.

    Rows of a user follow (time, row number), or with `tie_seed` a hash of the row number in place of it.
    """

    reads = ("user", "timestamp")
    leakage = _LEAKAGE.format("per user")
    holdout = "last"
    more_valid = "add users with three rows or more, or take split.method=random"
    method: Literal["leave-last-out"] = "leave-last-out"

    def codes(self, columns: Columns) -> Iterator[Codes]:
        """Yield the split codes of each batch of rows."""
        latest = LatestTwo()
        for batch in columns():
            latest.add(batch["user"], batch["timestamp"], self._keys(batch))
        enough = latest.counts >= 3
        tests, valids = np.sort(latest.rows[0][enough]), np.sort(latest.rows[1][enough])
        first = 0
        for batch in columns():
            codes = np.full(len(batch["user"]), TRAIN, dtype=np.uint8)
            for rows, code in ((valids, VALID), (tests, TEST)):
                begin, end = np.searchsorted(rows, (first, first + len(codes)))
                codes[rows[begin:end] - first] = code
            yield codes
            first += len(codes)


class UserSplit(_Fractions):
    """Disjoint users, by a hash of (seed, user number in order of appearance): for metrics of cold-start users."""

    reads = ("user",)
    leakage = _LEAKAGE.format("by user") + "; every user in valid and test is cold"
    keeps_impressions = True
    method: Literal["user"] = "user"
    seed: int = Field(42, ge=0)
    """Seed of the split."""

    def codes(self, columns: Columns) -> Iterator[Codes]:
        """Yield the split codes of each batch of rows."""
        for batch in columns():
            hashes = hash_counters(batch["user"].astype(np.uint64), mix(self.seed, _SPLIT_STREAM))
            yield _threshold(hashes, valid=self.valid, test=self.test)


class SessionSplit(_Fractions):
    """Disjoint users in order of time, for sessions as users: the earliest to end for train, the latest for test.

    A session belongs to the split of its last row, so that nothing in train is later than the end of a session of valid or
    test. Sessions that end at one time follow their first row. The shares are shares of sessions.
    """

    reads = ("user", "timestamp")
    keeps_impressions = True
    holdout = "latest"
    method: Literal["session"] = "session"

    def codes(self, columns: Columns) -> Iterator[Codes]:
        """Yield the split codes of each batch of rows."""
        ends = Ends()
        for batch in columns():
            ends.add(batch["user"], batch["timestamp"])
        number = len(ends.times)
        codes = np.full(number, TRAIN, dtype=np.uint8)
        order = np.argsort(ends.times, kind="stable")
        # Rounded as in the temporal split.
        codes[order[int(round(number * (1 - self.valid - self.test), 6)) :]] = VALID
        codes[order[int(round(number * (1 - self.test), 6)) :]] = TEST
        for batch in columns():
            yield codes[batch["user"]]


class FilesSplit(_Split):
    """Given files, for comparisons on published splits; columns as in the interactions of the dataset."""

    keeps_impressions = True
    in_order = None
    more_valid = "move rows of split.train to a file of their own, set split.valid to it and run recsys etl CONFIG"
    method: Literal["files"] = "files"
    train: str | None = None
    """Parquet or CSV file (or glob) of the train rows, relative to the working directory. None: the published splits of the
    dataset itself, such as `gowalla-m1`."""
    valid: str | None = None
    """File of the valid rows."""
    test: str | None = None
    """File of the test rows."""

    @model_validator(mode="after")
    def _has_train(self) -> FilesSplit:
        if self.train is None and (self.valid or self.test):
            raise ValueError("split.method=files has no train rows: set split.train to their file")
        return self

    def paths(self) -> dict[str, str]:
        """Return the given files, by split; none for the splits of the dataset itself."""
        return {split: path for split in SPLITS if (path := getattr(self, split)) is not None}


AnySplit = Annotated[
    RandomSplit | TemporalSplit | LeaveLastOut | UserSplit | SessionSplit | FilesSplit, Field(discriminator="method")
]


def splits() -> dict[str, type[_Split]]:
    """Return the splits by `split.method`."""
    return {kind.model_fields["method"].default: kind for kind in get_args(get_args(AnySplit)[0])}


def _threshold(hashes: npt.NDArray[np.uint64], *, valid: float, test: float) -> Codes:
    """Map hash ranges to splits: [0, valid) to valid, [valid, valid + test) to test, the rest to train."""
    codes = np.full(len(hashes), TRAIN, dtype=np.uint8)
    codes[hashes < np.uint64(min(int((valid + test) * 2**64), 2**64 - 1))] = TEST
    codes[hashes < np.uint64(min(int(valid * 2**64), 2**64 - 1))] = VALID
    return codes
