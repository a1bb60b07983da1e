"""Tags in the schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from recsys_cli.features.spec import Spec
from recsys_cli.ops.op import Names, Op


class AddTags(Op):
    """Add tags to columns in schema.json, for column selection in a custom model.

    Tags are added to existing ones, without duplicates, and follow the column through later ops. Values, nulls and
    rows do not change. A tag does not make a raw column part of the prepared data; an op or a role does.
    Fitted: nothing.
    """

    columnwise: ClassVar[bool] = True
    acts: ClassVar[bool] = False

    op: Literal["AddTags"] = "AddTags"
    columns: Annotated[Names, Field(min_length=1)]
    """Columns to tag, lists included."""
    tags: Annotated[Names, Field(min_length=1)]
    """Tags: arbitrary text."""

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the tagged columns."""
        return {
            name: replace(spec, tags=tuple(dict.fromkeys((*spec.tags, *self.tags)))) for name, spec in inputs.items()
        }
