"""The prepared columns: the treaty between ETL, loader, model and serving. It knows no engine and no tensor library."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, model_validator

from recsys_cli.errors import ConfigError, DataError

PADDING, NULL, UNSEEN = 0, 1, 2
"""Encoded ids with a fixed meaning: padding, null, and out of vocabulary. The vocabulary starts at FIRST."""
FIRST = 3
TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""How many of a unit of time make a second."""


def file_of(name: str) -> str:
    """Return the name of the parquet file that belongs to a column, whatever characters the column's name has."""
    return quote(name, safe=" ") + ".parquet"


Task = Literal["binary", "regression"]
"""How a label is predicted: how likely it is, or by the number itself."""


class Role(StrEnum):
    """What a column is for."""

    USER = "user"
    ITEM = "item"
    FEATURE = "feature"
    LABEL = "label"
    WEIGHT = "weight"
    LIST_WEIGHT = "list_weight"
    TIMESTAMP = "timestamp"
    SAMPLED = "sampled"


class Kind(StrEnum):
    """How a column's values are to be read."""

    CATEGORICAL = "categorical"
    NUMERIC = "numeric"


class Column(BaseModel):
    """One prepared column."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """Name of the column, and of the feature in a batch."""
    role: Role
    """What it is for."""
    kind: Kind
    """Whether values are encoded ids or numbers."""
    dtype: Literal["int8", "int16", "int32", "int64", "float32", "float64"]
    """Type of the values (of the elements, where ragged)."""
    cardinality: int | None = None
    """Rows of the embedding table (ids are below it); None for numbers."""
    vocabulary: str | None = None
    """Name of the vocabulary that its ids come from; None for numbers."""
    ragged: bool = False
    """Whether each row holds a list of values."""
    buckets: int = 0
    """How many of the last rows of the embedding table stand for values that train did not have."""
    tags: tuple[str, ...] = ()
    """What AddTags says of it."""
    weights: str | None = None
    """Column with the numbers that its elements are multiplied by where a list is summed; None where each counts once."""
    lengths: tuple[int, int] | None = None
    """Shortest and longest list in train, where ValueCount has counted them."""
    task: Task = "binary"
    """Of a label: whether it says yes or no, or is a number in units of its own."""
    unit: Literal["s", "ms", "us", "ns"] | None = None
    """Of a timestamp: the unit of its whole numbers since 1970 UTC; None for numbers as they are, such as raw seconds."""
    table: str | None = None
    """The column whose ids number the rows of the table it lives in; None where it lives in the interactions."""

    @property
    def own_ids(self) -> range:
        """The ids that stand for one value each: neither reserved nor shared by values that train did not have."""
        return range(FIRST, (self.cardinality or FIRST) - self.buckets)

    @model_validator(mode="after")
    def _categories_are_counted(self) -> Column:
        if (self.kind is Kind.CATEGORICAL) != (self.cardinality is not None):
            raise ValueError(f"column {self.name}: cardinality goes with categorical columns, and only with them")
        return self

    @property
    def is_regression(self) -> bool:
        """Whether it is a label that is predicted in its own units."""
        return self.task == "regression"


class Schema(BaseModel):
    """The prepared columns in order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    columns: tuple[Column, ...]

    def __getitem__(self, name: str) -> Column:
        """Return a column by name.

        Raises:
            ConfigError: There is no such column; the message lists those that there are.
        """
        for column in self.columns:
            if column.name == name:
                return column
        raise ConfigError(f"no column {name!r} in the prepared data; there are {', '.join(self.names)}")

    @property
    def names(self) -> tuple[str, ...]:
        """All column names, in order."""
        return tuple(column.name for column in self.columns)

    def select(self, keep: Callable[[Column], bool]) -> tuple[Column, ...]:
        """Return the columns for which `keep` is true, in order."""
        return tuple(column for column in self.columns if keep(column))

    @property
    def features(self) -> tuple[Column, ...]:
        """What a model may look at: user, item and feature columns; never labels, weights or the time."""
        return self.select(lambda column: column.role in {Role.USER, Role.ITEM, Role.FEATURE})

    @property
    def categorical(self) -> tuple[Column, ...]:
        """Feature columns of encoded ids, ragged ones included."""
        return tuple(column for column in self.features if column.kind is Kind.CATEGORICAL)

    @property
    def numeric(self) -> tuple[Column, ...]:
        """Feature columns of numbers."""
        return tuple(column for column in self.features if column.kind is Kind.NUMERIC)

    @property
    def labels(self) -> tuple[Column, ...]:
        """What is to be predicted; the first is the main one."""
        return self.select(lambda column: column.role is Role.LABEL)

    @property
    def label(self) -> Column:
        """The main label, which metrics are measured on.

        Raises:
            ConfigError: There is none.
        """
        if not self.labels:
            raise ConfigError("the prepared data has no label")
        return self.labels[0]

    @property
    def weight(self) -> Column | None:
        """How much a row counts in the loss; None where all count the same."""
        return next(iter(self.select(lambda column: column.role is Role.WEIGHT)), None)

    @property
    def ticks(self) -> int:
        """How much of the timestamp's unit makes a second; 1 for numbers in a unit of their own, and without a timestamp."""
        units = [TICKS[column.unit] for column in self.columns if column.unit is not None]
        return units[0] if units else 1

    def only(self, role: Role) -> Column:
        """Return the single column of a role (user, item).

        Raises:
            ConfigError: There is none, or more than one.
        """
        found = self.select(lambda column: column.role is role)
        if len(found) != 1:
            raise ConfigError(f"the prepared data needs exactly one {role.value} column and has {len(found)}")
        return found[0]

    def in_table(self, table: str | None) -> tuple[Column, ...]:
        """Return the columns that live in one table; None is the interactions."""
        return self.select(lambda column: column.table == table)

    @property
    def tables(self) -> tuple[str, ...]:
        """The key columns that have a table of joined features, in order of appearance."""
        return tuple(dict.fromkeys(column.table for column in self.columns if column.table is not None))

    def write(self, path: Path) -> None:
        """Write as indented JSON."""
        path.write_text(self.model_dump_json(indent=2, exclude_defaults=True) + "\n")

    @classmethod
    def read(cls, path: Path) -> Schema:
        """Read what `write` wrote.

        Raises:
            DataError: The file is not a schema of this version.
        """
        try:
            return cls.model_validate_json(path.read_text())
        except (OSError, ValueError) as error:
            raise DataError(
                f"{path}: not a schema that this version reads: {error}", hint="recsys etl --force"
            ) from error
