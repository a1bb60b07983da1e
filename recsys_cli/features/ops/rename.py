"""Rename: columns under other names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, field_validator

from recsys_cli.features.ops.fields import FrozenDict
from recsys_cli.features.ops.op import Op
from recsys_cli.features.spec import Spec


class Rename(Op):
    """Give columns other names; everything after it, and what is prepared, knows them by the new ones.

    Values, nulls, types, tags and vocabularies stay as they are, lists and empty input too: nothing is computed.
    The old name is no longer there. A new name that another column has is an error, and so is one that is renamed by the
    same op: swap names with two of them. A column that a join takes for its key keeps its name from there on. A raw
    column becomes one that is prepared. The columns that `features` names beside its ops are given by their new names;
    the user and the item are renamed before they are categorified. Nothing is fitted.
    """

    columnwise: ClassVar[bool] = True

    op: Literal["Rename"] = "Rename"
    columns: Annotated[dict[str, str], AfterValidator(FrozenDict), Field(min_length=1)]
    """New names by old ones."""

    @field_validator("columns")
    @classmethod
    def _names_are_new(cls, columns: dict[str, str]) -> dict[str, str]:
        new = list(columns.values())
        if twice := sorted({name for name in new if new.count(name) > 1}):
            raise ValueError(f"several columns would be called {', '.join(twice)}")
        if both := sorted(set(new) & set(columns)):
            raise ValueError(f"{', '.join(both)} would be an old and a new name; use a Rename after a Rename")
        if "" in new:
            raise ValueError("a new name is empty")
        return columns

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns under their old names."""
        return tuple(self.columns)

    @property
    def renames(self) -> Mapping[str, str]:
        """New names by old ones."""
        return self.columns

    def only(self, columns: tuple[str, ...]) -> Self:
        """Return the op for some of its columns."""
        return self.model_copy(update={"columns": FrozenDict({name: self.columns[name] for name in columns})})

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Describe the columns under their new names."""
        gone: dict[str, Spec | None] = dict.fromkeys(inputs)
        return gone | {self.columns[name]: spec for name, spec in inputs.items()}
