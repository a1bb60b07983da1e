"""The data model of the data report."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from recsys_cli.errors import DataError
from recsys_cli.features.schema import Task


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class OpRows(_Frozen):
    """The numbers of rows before and after an op."""

    op: str
    columns: tuple[str, ...]
    rows_in: int
    rows_out: int


class Distinct(_Frozen):
    """Users or items of a split."""

    distinct: int
    """Without null."""
    cold: int
    """Absent from the vocabulary of train."""


class LabelFacts(_Frozen):
    """The label in a split; statistics are None if no row has a label."""

    mean: float | None
    """Mean; the share of ones for binary labels."""
    low: float | None
    high: float | None
    null: int
    """Rows without a label."""
    zeroed: int = 0
    """Rows without a label, written as 0 because an integer type has no null."""
    binary: bool


class SplitFacts(_Frozen):
    """Statistics of a split; users or items are None if ops compute their column."""

    rows: int
    drawn: int
    """Sampled negatives among them; they count only for the label and for missing values."""
    dated: int = 0
    """Interactions with a time from 1973 to 2199, if times are dates."""
    far: int = 0
    """Interactions with a time before 1900 or after 2199, if times are dates."""
    users: Distinct | None
    items: Distinct | None
    label: LabelFacts
    first: int | float | None
    """First time, in seconds if the unit is known; None without times."""
    last: int | float | None

    @property
    def interactions(self) -> int:
        """Rows without sampled negatives."""
        return self.rows - self.drawn


class MissingValues(_Frozen):
    """Missing values of a column in a split; rows of a dimension table count once per interaction."""

    null: int
    unseen: int
    """Values without an id of their own; 0 for numeric columns."""
    values: int
    """All values (elements of a list column)."""
    infinite: int = 0
    """NaN counts as null."""


class Growth(_Frozen):
    """Growth of a vocabulary: expected distinct values in a random part of the rows of train."""

    rows: tuple[int, ...]
    values: tuple[float, ...]
    last_tenth: float
    """Expected share of the values found only in the last tenth of the rows."""


class Frequency(_Frozen):
    """Distribution of the number of train rows per user or item."""

    distinct: int
    rows: int
    """Number of their rows (elements of a list column), without null and values without an id of their own."""
    least: int
    median: float
    most: int
    once: int
    head: dict[str, float]
    """Share of the rows of the most frequent 1 % and 10 %, by `0.01` and `0.1`."""
    ranks: tuple[int, ...]
    """Ranks by frequency, from 1, with logarithmic spacing."""
    counts: tuple[int, ...]
    edges: tuple[int, ...]
    """Bin edges of the histogram of numbers of rows; half-open bins."""
    heights: tuple[int, ...]


class RepeatedPairs(_Frozen):
    """Repeated (user, item) pairs, or copies with the same time as well, of users and items with ids of their own."""

    share: float
    """Sampling rate of the values of `by`; 1 for all."""
    by: str
    """The sampled column; all rows of a sampled value are compared."""
    rows: dict[str, int]
    repeated: dict[str, int]
    """Rows with a pair of an earlier row, by split."""
    seen: dict[str, dict[str, int]]
    """Held-out rows with a pair of an earlier split, by both."""


class CommonTarget(_Frozen):
    """The most frequent item of a held-out split."""

    item: str
    """Raw value of the item."""
    users: int
    """Users of the split with an id of their own."""
    with_item: int
    """Those with a row of the item."""


class SplitBoundary(_Frozen):
    """Overlap in time of two splits."""

    earlier: str
    later: str
    first: int | float
    """Time of the first row of the later split, in seconds if the unit is known."""
    after: int
    """Rows of the earlier split after this time."""
    tied: int
    """Rows of the earlier split at exactly this time."""


class Timeline(_Frozen):
    """Histogram of the rows over time."""

    edges: tuple[int | float, ...]
    """Bin edges, in seconds if the unit is known; half-open bins."""
    every: int
    """Sampling rate: one in `every` rows; 1 for all."""
    rows: dict[str, tuple[int, ...]]
    """Rows per bin, by split; extrapolated from a sample."""


class Finding(_Frozen):
    """A conclusion from the facts."""

    level: Literal["note", "warning"]
    """`warning` for wrong or too optimistic metrics; `note` for an explanation of metrics."""
    text: str


class Facts(_Frozen):
    """All facts about prepared data."""

    dataset: str
    method: str
    item: str | None = None
    """The item column."""
    time: str | None = None
    """The time column."""
    task: Task = "binary"
    rejected: int
    ops: tuple[OpRows, ...]
    splits: dict[str, SplitFacts]
    """By name, empty splits included."""
    missing: dict[str, dict[str, MissingValues]]
    """By column and split."""
    continuous: tuple[str, ...] = ()
    """Numeric inputs of models, without null and infinite values if valid."""
    growth: dict[str, Growth]
    items: Frequency | None
    """Popularity of items; None if train has no item with an id of its own."""
    users: Frequency | None
    """Activity of users; None if train has no user with an id of its own."""
    pairs: RepeatedPairs | None
    """Repeated pairs; None for lists of users or items."""
    copies: RepeatedPairs | None = None
    """Repeated (user, item, time) triples; None without times."""
    targets: dict[str, CommonTarget] = Field(default_factory=dict)
    """The most frequent item by held-out split; empty for lists of users or items."""
    timeline: Timeline | None
    borders: tuple[SplitBoundary, ...]
    future: dict[str, int] = Field(default_factory=dict)
    """Held-out rows with a later row of the same user in an earlier split, by split; empty without times."""
    train_only: dict[str, bool]
    """Whether the fitted counts of users, items and keys equal those of the prepared rows of train."""
    rows_first: tuple[str, ...]
    """Ops before the split, with access to later held-out rows."""
    findings: tuple[Finding, ...] = ()

    @classmethod
    def read(cls, path: Path) -> Facts:
        """Read a report.json.

        Raises:
            DataError: The file is not a report of this version.
        """
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(
                f"{path}: not a report of this version: {error}", hint="prepare the data again: `recsys etl --force`"
            ) from error
