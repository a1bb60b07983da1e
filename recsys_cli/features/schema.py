"""Schema of the prepared data: the contract between ETL, loader, models and serving."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from pydantic import model_validator

from recsys_cli.errors import ConfigError, DataError
from recsys_cli.frozen import Frozen

PADDING, NULL, UNSEEN = 0, 1, 2
"""Reserved ids: padding, null and out of vocabulary. The vocabulary starts at FIRST."""
FIRST = 3
TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Units of time per second."""


def file_of(name: str) -> str:
    """Return the Parquet file name of a column, escaped."""
    return quote(name, safe=" ") + ".parquet"


Task = Literal["binary", "regression"]
"""Prediction task of a label: a probability, or a number."""


class Role(StrEnum):
    """Role of a column."""

    USER = "user"
    ITEM = "item"
    FEATURE = "feature"
    LABEL = "label"
    WEIGHT = "weight"
    LIST_WEIGHT = "list_weight"
    TIMESTAMP = "timestamp"
    SAMPLED = "sampled"


class Kind(StrEnum):
    """Type of a column: encoded ids or numbers."""

    CATEGORICAL = "categorical"
    NUMERIC = "numeric"


class Column(Frozen):
    """Prepared column."""

    name: str
    role: Role
    kind: Kind
    dtype: Literal["int8", "int16", "int32", "int64", "float32", "float64"]
    """Type of the values, or of list elements."""
    cardinality: int | None = None
    """Rows of the embedding table, above all ids; None for numbers."""
    vocabulary: str | None = None
    """Name of the vocabulary, if there is one."""
    ragged: bool = False
    buckets: int = 0
    """Hash buckets for unseen values, the last rows of the embedding table."""
    tags: tuple[str, ...] = ()
    weights: str | None = None
    """Column of element weights of a list; None for equal weights."""
    lengths: tuple[int, int] | None = None
    """Minimum and maximum list length in train, from ValueCount."""
    task: Task = "binary"
    unit: Literal["s", "ms", "us", "ns"] | None = None
    """Unit of an integer timestamp since 1970 UTC; None for raw numbers, such as seconds."""
    table: str | None = None
    """Key column of the dimension table; None for the interactions."""

    @property
    def own_ids(self) -> range:
        """Ids of a single value: neither reserved nor a bucket."""
        return range(FIRST, (self.cardinality or FIRST) - self.buckets)

    @model_validator(mode="after")
    def _categories_are_counted(self) -> Column:
        if (self.kind is Kind.CATEGORICAL) != (self.cardinality is not None):
            raise ValueError(f"column {self.name}: categorical columns need a cardinality, numeric columns have none")
        return self

    @property
    def is_regression(self) -> bool:
        """Whether the label is numeric."""
        return self.task == "regression"

    @property
    def is_filled(self) -> bool:
        """Whether models of embeddings take 0 for a missing number, after Normalize the mean: no id outside a table has numbers."""
        return self.kind is Kind.NUMERIC and self.table is not None


class Schema(Frozen):
    """Prepared columns in order."""

    columns: tuple[Column, ...]

    def __getitem__(self, name: str) -> Column:
        """Return a column by name; a `ConfigError` for an unknown one."""
        for column in self.columns:
            if column.name == name:
                return column
        raise ConfigError(f"no column {name!r} in the prepared data; there are {', '.join(self.names)}")

    @property
    def names(self) -> tuple[str, ...]:
        """Column names, in order."""
        return tuple(column.name for column in self.columns)

    def select(self, keep: Callable[[Column], bool]) -> tuple[Column, ...]:
        """Return the columns that satisfy a predicate, in order."""
        return tuple(column for column in self.columns if keep(column))

    @property
    def features(self) -> tuple[Column, ...]:
        """Model inputs: user, item and feature columns."""
        return self.select(lambda column: column.role in {Role.USER, Role.ITEM, Role.FEATURE})

    @property
    def categorical(self) -> tuple[Column, ...]:
        """Features of encoded ids, lists included."""
        return tuple(column for column in self.features if column.kind is Kind.CATEGORICAL)

    @property
    def numeric(self) -> tuple[Column, ...]:
        """Features of numbers."""
        return tuple(column for column in self.features if column.kind is Kind.NUMERIC)

    @property
    def labels(self) -> tuple[Column, ...]:
        """Label columns, the main one first."""
        return self.select(lambda column: column.role is Role.LABEL)

    @property
    def label(self) -> Column:
        """The main label, the target of metrics; a `ConfigError` if there is none."""
        if not self.labels:
            raise ConfigError("the prepared data has no label")
        return self.labels[0]

    @property
    def weight(self) -> Column | None:
        """Column of sample weights, if there is one."""
        return next(iter(self.select(lambda column: column.role is Role.WEIGHT)), None)

    @property
    def ticks(self) -> int:
        """Timestamp units per second; 1 for raw numbers."""
        units = [TICKS[column.unit] for column in self.columns if column.unit is not None]
        return units[0] if units else 1

    def seconds(self, time: float | None) -> float | None:
        """Convert a time of an interaction to seconds; a raw number stays as it is, as does None."""
        return time if time is None or self.ticks == 1 else time / self.ticks

    def only(self, role: Role) -> Column:
        """Return the single column of a role; a `ConfigError` for none or several."""
        columns = self.select(lambda column: column.role is role)
        if len(columns) != 1:
            raise ConfigError(f"the prepared data needs exactly one {role.value} column, but has {len(columns)}")
        return columns[0]

    def in_table(self, table: str | None) -> tuple[Column, ...]:
        """Return the columns of a table; None for the interactions."""
        return self.select(lambda column: column.table == table)

    @property
    def tables(self) -> tuple[str, ...]:
        """Key columns of the dimension tables, in order of appearance."""
        return tuple(dict.fromkeys(column.table for column in self.columns if column.table is not None))

    def write(self, path: Path) -> None:
        """Write as indented JSON."""
        path.write_text(self.model_dump_json(indent=2, exclude_defaults=True) + "\n")

    @classmethod
    def read(cls, path: Path) -> Schema:
        """Read the file of `write`; a `DataError` for one of another version."""
        try:
            return cls.model_validate_json(path.read_text())
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: not a schema of this version: {error}", hint="recsys etl --force") from error
