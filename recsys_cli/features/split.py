"""Which row goes into which split: decided here from row numbers and keys alone, so engines and partitions cannot disagree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Literal, get_args

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

from recsys_cli.features.hashing import hash_counters, mix
from recsys_cli.features.order import Ints, LatestTwo, TimeBoundary

SPLITS = ("train", "valid", "test")
TRAIN, VALID, TEST = range(3)

Codes = npt.NDArray[np.uint8]
Columns = Callable[[], Iterator[Mapping[str, Ints]]]
_SPLIT_STREAM = 1
_LEAKAGE = (
    "splitting {how} leaves interactions in train that are later than some in {held_out}: "
    "the figures are comparable with papers that do the same, and optimistic for a live system (split.method=temporal is not)"
)


class _Split(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @property
    def reads(self) -> tuple[Literal["user", "timestamp"], ...]:
        """Which columns `assign` needs."""
        return ()

    @property
    def leakage(self) -> str | None:
        """What a reader of the figures has to know, or None."""
        return None


class _Fractions(_Split):
    valid: float = Field(0.2, ge=0, lt=1)
    """Share of the rows for validation: they choose the epoch."""
    test: float = Field(0.1, ge=0, lt=1)
    """Share of the rows for the test: they choose nothing, and are what is reported. 0 for none: then `recsys evaluate` takes
    valid, and says so where its rows chose the epoch."""

    @model_validator(mode="after")
    def _leaves_train(self) -> _Fractions:
        if self.valid + self.test >= 1:
            raise ValueError(f"valid + test is {self.valid + self.test:g}, which leaves nothing to train on")
        return self


class RandomSplit(_Fractions):
    """Each row on its own, by a hash of (seed, row number): the recipe of the Merlin notebooks, made repeatable."""

    method: Literal["random"] = "random"
    seed: int = Field(42, ge=0)
    """Another seed is another split."""

    @property
    def leakage(self) -> str:
        """What a reader of the figures has to know."""
        return _LEAKAGE.format(how="at random", held_out="valid and test")

    def assign_rows(self, rows: npt.NDArray[np.uint64]) -> Codes:
        """Return the split code of each row number; needs no other row, so it works on any chunk."""
        hashes = hash_counters(rows, mix(self.seed, _SPLIT_STREAM))
        return _threshold(hashes, valid=self.valid, test=self.test)


class TemporalSplit(_Fractions):
    """Globally by time: the earliest rows train, the latest test; rows of one time are ordered by row number."""

    method: Literal["temporal"] = "temporal"

    @property
    def reads(self) -> tuple[Literal["user", "timestamp"], ...]:
        """Which columns `assign` needs."""
        return ("timestamp",)

    def codes(self, columns: Columns) -> Iterator[Codes]:
        """Yield the split codes of each batch of rows; see `assign`."""
        num_rows = sum(len(batch["timestamp"]) for batch in columns())
        # Rounded, because 10 * (1 - 0.2 - 0.1) is 7.000000000000001 or 6.999999999999999 by luck.
        first_valid = int(round(num_rows * (1 - self.valid - self.test), 6))
        first_test = int(round(num_rows * (1 - self.test), 6))

        def times() -> Iterator[Ints]:
            return (batch["timestamp"] for batch in columns())

        borders = [TimeBoundary.at(times, rank) for rank in (first_valid, first_test)]
        for batch in columns():
            later, latest = (border.reached(batch["timestamp"]) for border in borders)
            yield (later.astype(np.uint8) + latest).astype(np.uint8)


class LeaveLastOut(_Split):
    """Each user's last row tests, the one before validates; users with fewer than three rows stay in train.

    The last is by (user, time, row number), so ties in time are resolved the same way every time.
    """

    method: Literal["leave-last-out"] = "leave-last-out"

    @property
    def reads(self) -> tuple[Literal["user", "timestamp"], ...]:
        """Which columns `assign` needs."""
        return ("user", "timestamp")

    @property
    def leakage(self) -> str:
        """What a reader of the figures has to know."""
        return _LEAKAGE.format(how="per user", held_out="valid and test")

    def codes(self, columns: Columns) -> Iterator[Codes]:
        """Yield the split codes of each batch of rows; see `assign`."""
        latest = LatestTwo()
        for batch in columns():
            latest.add(batch["user"], batch["timestamp"])
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
    """Whole users, by a hash of (seed, user's number in order of appearance): how well does it do on people it never saw?"""

    method: Literal["user"] = "user"
    seed: int = Field(42, ge=0)
    """Another seed is another split."""

    @property
    def reads(self) -> tuple[Literal["user", "timestamp"], ...]:
        """Which columns `assign` needs."""
        return ("user",)

    @property
    def leakage(self) -> str:
        """What a reader of the figures has to know."""
        return _LEAKAGE.format(how="by user", held_out="valid and test") + "; every user in valid and test is cold"

    def codes(self, columns: Columns) -> Iterator[Codes]:
        """Yield the split codes of each batch of rows; see `assign`."""
        for batch in columns():
            hashes = hash_counters(batch["user"].astype(np.uint64), mix(self.seed, _SPLIT_STREAM))
            yield _threshold(hashes, valid=self.valid, test=self.test)


class FilesSplit(_Split):
    """Given files, so that results compare on the same rows as somebody else's; columns as in the dataset's interactions."""

    method: Literal["files"] = "files"
    train: str
    """Parquet or CSV file (or glob) with the training rows, relative to the working directory."""
    valid: str | None = None
    """The same for validation."""
    test: str | None = None
    """The same for the test."""

    def paths(self) -> dict[str, str]:
        """Return the files that were given, by split."""
        given = {"train": self.train, "valid": self.valid, "test": self.test}
        return {split: path for split, path in given.items() if path is not None}


AnySplit = Annotated[RandomSplit | TemporalSplit | LeaveLastOut | UserSplit | FilesSplit, Field(discriminator="method")]


def split_options(method: object) -> dict[str, object] | None:
    """Return the types of a split's options by name; None where there is no such split.

    Args:
        method: What `split.method` says.
    """
    for kind in get_args(get_args(AnySplit)[0]):
        if kind.model_fields["method"].default == method:
            return {name: field.annotation for name, field in kind.model_fields.items() if name != "method"}
    return None


def assign(split: TemporalSplit | LeaveLastOut | UserSplit, columns: Columns) -> Iterator[Codes]:
    """Decide every row's split, batch by batch, in memory that does not grow with the rows.

    Args:
        split: The rule.
        columns: Returns the batches of rows from the start, each time that it is called: what `split.reads` names, as whole
            numbers; `user` is any numbering of the users from 0 that is a function of the raw input alone (order of first
            appearance).

    Yields:
        The codes of each batch, indices into SPLITS.
    """
    return split.codes(columns)


def _threshold(hashes: npt.NDArray[np.uint64], *, valid: float, test: float) -> Codes:
    """Cut the hash range: [0, valid) validates, [valid, valid + test) tests, the rest trains."""
    codes = np.full(len(hashes), TRAIN, dtype=np.uint8)
    codes[hashes < np.uint64(min(int((valid + test) * 2**64), 2**64 - 1))] = TEST
    codes[hashes < np.uint64(min(int(valid * 2**64), 2**64 - 1))] = VALID
    return codes
