"""KCore: keep the users and items that have enough interactions with each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from recsys_cli.features.ops.fields import FrozenDict
from recsys_cli.features.ops.op import Op, Phase, scalars
from recsys_cli.features.spec import Spec


class KCore(Op):
    """Keep the interactions whose user and item, or other columns, each have enough interactions that are kept as well.

    The largest such set: leaving out a rare item may make a user rare, and so on, to a fixpoint, which does not depend
    on any order. One column alone is counted once. A row with a null (or NaN) in one of the columns is left out. A constant
    column has one value with all rows. -0.0 is 0.0. It looks at the whole input, before the split and before everything
    that is fitted; counting interactions that are held out later is part of what papers call k-core filtering.
    With split.method=files only the rows of train are chosen, and only they are counted: the other files are given so
    that results compare on the same rows as somebody else's. An empty input stays empty, and the set may be empty too.
    Nothing is fitted. No column changes.
    """

    phase: ClassVar[Phase] = "rows"
    drops_only: ClassVar[bool] = True
    train_only: ClassVar[bool] = True

    op: Literal["KCore"] = "KCore"
    columns: dict[str, Annotated[int, Field(ge=1)]] = Field(min_length=1)
    """Column by column how many rows each of its values needs, such as `{user: 5, item: 5}`; no lists."""

    @field_validator("columns")
    @classmethod
    def _frozen(cls, columns: dict[str, int]) -> dict[str, int]:
        return FrozenDict(columns)

    @property
    def title(self) -> str:
        """How a message names it."""
        return f"{self.name} {', '.join(f'{name} ≥ {least}' for name, least in self.columns.items())}"

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Check the columns: rows are left out, and no column changes.

        Raises:
            ConfigError: One of them holds lists.
        """
        scalars(inputs)
        return {}
