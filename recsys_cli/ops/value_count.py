"""List lengths in the schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from recsys_cli.features.spec import Spec
from recsys_cli.ops.fields import Names
from recsys_cli.ops.op import Op, lists

SHORTEST, LONGEST = "shortest", "longest"
"""Columns of the fitted state, in one row."""


class ValueCount(Op):
    """Record the minimum and maximum list length of columns in schema.json, for the shape of tensors.

    Fitted: the minimum and maximum number of elements in train; of joined columns over the train interactions. Other
    splits may hold shorter and longer lists; limit them with ListSlice.
    Nulls: null and NaN elements count; a null list has length 0. Train without rows gives 0 and 0.
    Output: the columns, unchanged; the lengths follow a column through ListSlice and ops that keep lengths.
    """

    fitted: ClassVar[bool] = True
    columnwise: ClassVar[bool] = True
    acts: ClassVar[bool] = False

    op: Literal["ValueCount"] = "ValueCount"
    columns: Annotated[Names, Field(min_length=1)]
    """List columns."""

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the columns, unchanged, with one element in each list before fitting."""
        return {name: replace(spec, lengths=(1, 1)) for name, spec in lists(inputs).items()}

    def fitted_output(self, name: str, spec: Spec, state: Mapping[str, pa.Table]) -> Spec:
        """Add the fitted list lengths."""
        return replace(spec, lengths=tuple(state[name].column(end)[0].as_py() for end in (SHORTEST, LONGEST)))
