"""New column names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, field_validator

from recsys_cli.features.spec import Spec
from recsys_cli.ops.op import FrozenDict, Op, Tables
from recsys_cli.ops.values import Apply, Columns, Types
from recsys_cli.packages import pa, pl


class Rename(Op):
    """Rename columns; later ops and the prepared data use the new names.

    Values, nulls, types, tags and vocabularies stay. A new name must not exist, nor be renamed by the same op: swap names
    with two ops. A renamed raw column becomes part of the prepared data. The key of an earlier join cannot be renamed;
    user and item are renamed before their Categorify. `features` names renamed columns by their new names.
    Fitted: nothing.
    """

    columnwise: ClassVar[bool] = True

    op: Literal["Rename"] = "Rename"
    columns: Annotated[dict[str, str], AfterValidator(FrozenDict), Field(min_length=1)]
    """New names by old name."""

    @field_validator("columns")
    @classmethod
    def _names_are_new(cls, columns: dict[str, str]) -> dict[str, str]:
        new = list(columns.values())
        if twice := sorted({name for name in new if new.count(name) > 1}):
            raise ValueError(f"several columns would be called {', '.join(twice)}; choose distinct names")
        if both := sorted(set(new) & set(columns)):
            raise ValueError(f"{', '.join(both)} would be an old and a new name; use a second Rename")
        if "" in new:
            raise ValueError("a new name is empty")
        return columns

    @property
    def reads(self) -> tuple[str, ...]:
        """The old names."""
        return tuple(self.columns)

    @property
    def renames(self) -> Mapping[str, str]:
        """New names by old name."""
        return self.columns

    def only(self, columns: tuple[str, ...]) -> Self:
        """Return the op for some of its columns."""
        return self.model_copy(update={"columns": FrozenDict({name: self.columns[name] for name in columns})})

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the columns by new name, and None for the old ones."""
        dropped: dict[str, Spec | None] = dict.fromkeys(inputs)
        return dropped | {self.columns[name]: spec for name, spec in inputs.items()}

    def numpy(self, state: Tables, types: Types) -> Apply:
        """Rename the columns."""
        for old, new in self.columns.items():
            types[new] = types.pop(old)

        def apply(columns: Columns, rows: int) -> None:
            for old, new in self.columns.items():
                columns[new] = columns.pop(old)

        return apply

    def polars(self, state: Tables, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Rename the columns."""
        return frame.rename(self.columns)

    def nvtabular(self, state: Tables, rows: pa.Table, folder: Path) -> pa.Table:
        """Rename the columns, without a conversion of their values."""
        return rows.rename_columns([self.columns.get(name, name) for name in rows.column_names])
