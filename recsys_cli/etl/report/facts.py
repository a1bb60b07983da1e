"""What the data report knows, as frozen types: the treaty between counting, report.json, the page and the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from recsys_cli.errors import DataError
from recsys_cli.features.schema import Task


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class OpRows(_Frozen):
    """What one op makes of the rows."""

    op: str
    """The op, as messages name it."""
    columns: tuple[str, ...]
    """The columns that it reads."""
    rows_in: int
    """Rows that come in."""
    rows_out: int
    """Rows that come out."""


class Distinct(_Frozen):
    """Users or items of a split."""

    distinct: int
    """How many there are, without nulls."""
    cold: int
    """How many of them are not in the vocabulary, which is learnt from train."""


class LabelFacts(_Frozen):
    """The label of a split's rows; None where no row has one."""

    mean: float | None
    """Mean: where all are 0 or 1, the share of ones."""
    low: float | None
    """Least value."""
    high: float | None
    """Greatest value."""
    null: int
    """Rows without one."""
    zeroed: int = 0
    """Rows without one that have 0 instead, because its type has no other way to say so."""
    binary: bool
    """Whether all are 0 or 1."""


class SplitFacts(_Frozen):
    """What there is to say of one split."""

    rows: int
    """How many rows."""
    drawn: int
    """How many of them nobody made: they were drawn as negatives. Only the label and what is missing look at them."""
    users: Distinct | None
    """Who is in it; None where it cannot be said, because ops have made users of something else."""
    items: Distinct | None
    """The same for items."""
    label: LabelFacts
    """What is to be predicted."""
    first: int | float | None
    """Time of its earliest row, in seconds where the unit of the times is known; None without rows that have one."""
    last: int | float | None
    """Time of its latest row."""


class MissingValues(_Frozen):
    """Values of a column in a split; those of a table count once for each row that they stand for."""

    null: int
    """How many are null."""
    unseen: int
    """How many have no id of their own; 0 for numbers."""
    values: int
    """How many there are (elements, where a row holds a list)."""
    infinite: int = 0
    """How many numbers are infinite; NaN counts as null."""


class Growth(_Frozen):
    """How many distinct values one has seen after so many rows of train, if they come in any order."""

    rows: tuple[int, ...]
    """Rows read."""
    values: tuple[float, ...]
    """Distinct values expected in them."""
    last_tenth: float
    """Share of the values that only the last tenth of the rows brings: how far the vocabulary is from complete."""


class Frequency(_Frozen):
    """How often users or items of train occur."""

    distinct: int
    """How many there are."""
    rows: int
    """Rows (elements, where a row holds a list) that are theirs: all but nulls and what has no id of its own."""
    least: int
    """Rows of the rarest."""
    median: float
    """Half of them have so many or fewer."""
    most: int
    """Rows of the most frequent."""
    once: int
    """How many occur once."""
    head: dict[str, float]
    """Share of the rows that the most frequent hundredth and tenth have, by `0.01` and `0.1`."""
    ranks: tuple[int, ...]
    """Positions in the order by frequency, from 1, far apart at the end."""
    counts: tuple[int, ...]
    """Rows of the one at each of them."""
    edges: tuple[int, ...]
    """Intervals of numbers of rows: from an edge to below the next."""
    heights: tuple[int, ...]
    """How many of them have such a number."""


class RepeatedPairs(_Frozen):
    """The same user with the same item more than once, of users and items that have ids of their own."""

    share: float
    """Part of `by` that was looked at: below 1 it is a sample, chosen by hash."""
    by: str
    """The column whose values were chosen; all rows of a chosen value are looked at."""
    rows: dict[str, int]
    """Rows looked at, by split."""
    repeated: dict[str, int]
    """Rows of a split whose pair stands in the same split before, by split."""
    seen: dict[str, dict[str, int]]
    """Rows of a held-out split whose pair stands in an earlier split too, by split and earlier split."""


class SplitBoundary(_Frozen):
    """Where a split ends in time and the next one begins."""

    earlier: str
    """The split that should come first."""
    later: str
    """The split that should come after it."""
    first: int | float
    """Time of the first row of the later split, in seconds where the unit is known."""
    after: int
    """Rows of the earlier split that are later than that."""
    tied: int
    """Rows of the earlier split at the very same time."""


class Timeline(_Frozen):
    """When the rows are from."""

    edges: tuple[int | float, ...]
    """Intervals of time, in seconds where the unit is known: from an edge to below the next."""
    every: int
    """One in so many rows is looked at; 1 for all."""
    rows: dict[str, tuple[int, ...]]
    """Rows in each of them, by split; where not all are looked at, as many as that makes of all."""


class Finding(_Frozen):
    """Something that a reader must not miss."""

    level: Literal["note", "warning"]
    """`warning` where figures would be wrong or better than they ought to be; `note` for what explains them."""
    text: str
    """A sentence."""


class Facts(_Frozen):
    """All facts about prepared data."""

    dataset: str
    """Its name."""
    method: str
    """How it was split."""
    task: Task = "binary"
    """What the label has to be."""
    rejected: int
    """Rows that could not be read and were left out."""
    ops: tuple[OpRows, ...]
    """The ops, in order."""
    splits: dict[str, SplitFacts]
    """By name, empty ones included."""
    missing: dict[str, dict[str, MissingValues]]
    """By column and split."""
    continuous: tuple[str, ...] = ()
    """Columns of numbers that models read: a null or infinite one there is nothing that can be learnt from."""
    growth: dict[str, Growth]
    """By column."""
    items: Frequency | None
    """How popular items are; None where train has none with an id of its own."""
    users: Frequency | None
    """How active users are."""
    pairs: RepeatedPairs | None
    """What repeats; None where a row holds a list of users or items."""
    timeline: Timeline | None
    """None without times."""
    borders: tuple[SplitBoundary, ...]
    """Between the splits that have times."""
    train_only: dict[str, bool]
    """For users, items and keys of tables: whether counting the prepared rows of train, and nothing else, gives what was learnt."""
    rows_first: tuple[str, ...]
    """Ops that work before the split, and so on rows that are held out later."""
    findings: tuple[Finding, ...] = ()
    """What follows from it all."""

    @classmethod
    def read(cls, path: Path) -> Facts:
        """Read a report.json.

        Raises:
            DataError: It is not one of this version.
        """
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(
                f"{path}: not a report that this version reads: {error}", hint="recsys etl --force"
            ) from error
