"""Which row goes into which split: decided here from row numbers and keys alone, so engines and partitions cannot disagree."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

from recsys_cli.features.hashing import hash_counters, mix

SPLITS = ("train", "valid", "test")
TRAIN, VALID, TEST = range(3)

Codes = npt.NDArray[np.uint8]
_SPLIT_STREAM = 1
_LEAKAGE = (
    "splitting {how} leaves interactions in train that are later than some in {held_out}: "
    "the figures are comparable with papers that do the same, and optimistic for a live system (split.method=temporal is not)"
)


class _Split(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

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
    """Share of the rows for validation."""
    test: float = Field(0.0, ge=0, lt=1)
    """Share of the rows for the test; 0 for none (then `recsys evaluate` takes valid)."""

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
        return self._by_hash(hash_counters(rows, mix(self.seed, _SPLIT_STREAM)))

    def _by_hash(self, hashes: npt.NDArray[np.uint64]) -> Codes:
        return _threshold(hashes, valid=self.valid, test=self.test)

    def assign(self, num_rows: int, columns: dict[str, npt.NDArray[np.int64]]) -> Codes:
        """Return the split code of every row; see `assign`."""
        del columns
        return self.assign_rows(np.arange(num_rows, dtype=np.uint64))


class TemporalSplit(_Fractions):
    """Globally by time: the earliest rows train, the latest test; rows of one time are ordered by row number."""

    method: Literal["temporal"] = "temporal"

    @property
    def reads(self) -> tuple[Literal["user", "timestamp"], ...]:
        """Which columns `assign` needs."""
        return ("timestamp",)

    def assign(self, num_rows: int, columns: dict[str, npt.NDArray[np.int64]]) -> Codes:
        """Return the split code of every row; see `assign`."""
        order = np.argsort(columns["timestamp"], kind="stable")
        # Rounded, because 10 * (1 - 0.2 - 0.1) is 7.000000000000001 or 6.999999999999999 by luck.
        first_valid = int(round(num_rows * (1 - self.valid - self.test), 6))
        first_test = int(round(num_rows * (1 - self.test), 6))
        codes = np.full(num_rows, TRAIN, dtype=np.uint8)
        codes[order[first_valid:first_test]] = VALID
        codes[order[first_test:]] = TEST
        return codes


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

    def assign(self, num_rows: int, columns: dict[str, npt.NDArray[np.int64]]) -> Codes:
        """Return the split code of every row; see `assign`."""
        order = np.lexsort((np.arange(num_rows), columns["timestamp"], columns["user"]))
        users = columns["user"][order]
        codes = np.full(num_rows, TRAIN, dtype=np.uint8)
        if num_rows < 3:
            return codes
        ends = np.flatnonzero(np.append(users[1:] != users[:-1], True))
        starts = np.append(0, ends[:-1] + 1)
        enough = ends[ends - starts + 1 >= 3]
        codes[order[enough]] = TEST
        codes[order[enough - 1]] = VALID
        return codes


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

    def assign(self, num_rows: int, columns: dict[str, npt.NDArray[np.int64]]) -> Codes:
        """Return the split code of every row; see `assign`."""
        del num_rows
        users = columns["user"].astype(np.uint64)
        return _threshold(hash_counters(users, mix(self.seed, _SPLIT_STREAM)), valid=self.valid, test=self.test)


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


def assign(
    split: RandomSplit | TemporalSplit | LeaveLastOut | UserSplit,
    num_rows: int,
    columns: dict[str, npt.NDArray[np.int64]],
) -> Codes:
    """Decide every row's split.

    Args:
        split: The rule.
        num_rows: Rows of the raw interactions, N.
        columns: What `split.reads` names, each of N whole numbers; `user` is any numbering of the users that is a
            function of the raw input alone (order of first appearance).

    Returns:
        N codes, indices into SPLITS.
    """
    return split.assign(num_rows, columns)


def _threshold(hashes: npt.NDArray[np.uint64], *, valid: float, test: float) -> Codes:
    """Cut the hash range: [0, valid) validates, [valid, valid + test) tests, the rest trains."""
    codes = np.full(len(hashes), TRAIN, dtype=np.uint8)
    codes[hashes < np.uint64(min(int((valid + test) * 2**64), 2**64 - 1))] = TEST
    codes[hashes < np.uint64(min(int(valid * 2**64), 2**64 - 1))] = VALID
    return codes
