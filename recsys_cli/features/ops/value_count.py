"""ValueCount: how long lists are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from recsys_cli.features.ops.fields import Names
from recsys_cli.features.ops.op import Op, lists
from recsys_cli.features.spec import Spec

SHORTEST, LONGEST = "shortest", "longest"
"""Columns of what it learns, in one row."""


class ValueCount(Op):
    """Note in schema.json how long the shortest and the longest list of a column are, for whoever sizes a tensor by it.

    Fitted: the least and the greatest number of elements in a row of train; null and NaN elements count, and a null list
    is one of 0 elements. Of a joined column as if joined: ids that train does not have do not count. Train without a row
    gives 0 and 0. Other splits may hold shorter and longer lists; ListSlice limits those.
    Output: the columns as they are; what has been noted goes with a list through ops that keep its length, and ListSlice.
    """

    fitted: ClassVar[bool] = True
    columnwise: ClassVar[bool] = True
    acts: ClassVar[bool] = False

    op: Literal["ValueCount"] = "ValueCount"
    columns: Annotated[Names, Field(min_length=1)]
    """Columns of lists."""

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Describe the columns: as they are.

        Raises:
            ConfigError: A column holds no lists.
        """
        return dict(lists(inputs))

    def learnt(self, outputs: dict[str, Spec | None], state: Mapping[str, pa.Table]) -> dict[str, Spec | None]:
        """Describe the columns with the lengths of their lists."""
        found: dict[str, Spec | None] = {}
        for name, spec in outputs.items():
            assert spec is not None
            lengths = state[name].column(SHORTEST)[0].as_py(), state[name].column(LONGEST)[0].as_py()
            found[name] = replace(spec, lengths=lengths)
        return found
