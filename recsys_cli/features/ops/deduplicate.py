"""Deduplicate: keep one interaction of those that are the same in some columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from recsys_cli.features.ops.fields import Names
from recsys_cli.features.ops.op import Op, Phase, scalars
from recsys_cli.features.spec import Spec


class Deduplicate(Op):
    """Keep one interaction of those that are the same in all of some columns, such as user and item.

    Which is the first and which the last is decided by `order_by` (nulls come last), and where that is equal or not
    given by the order of the rows in the input: so no tie is open. Null is equal to null, NaN is null, and -0.0 is 0.0.
    It looks at the whole input, before the split and before everything that is fitted; with split.method=files at each
    of the given sets of files on its own. An empty input stays empty. Nothing is fitted. No column changes.
    """

    phase: ClassVar[Phase] = "rows"
    drops_only: ClassVar[bool] = True

    op: Literal["Deduplicate"] = "Deduplicate"
    columns: Annotated[Names, Field(min_length=1)]
    """Columns that make two interactions the same; single values, no lists."""
    keep: Literal["first", "last", "none"] = "first"
    """Which of them is kept; `none` leaves out all that are not alone."""
    order_by: Names = ()
    """Columns by which first and last are told, most important first, such as the timestamp."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that are compared, and those of the order."""
        return tuple(dict.fromkeys((*self.columns, *self.order_by)))

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Check the columns: rows are left out, and no column changes.

        Raises:
            ConfigError: One of them holds lists.
        """
        scalars(inputs)
        return {}
