"""AddTags: words about columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from recsys_cli.features.ops.fields import Names
from recsys_cli.features.ops.op import Op
from recsys_cli.features.spec import Spec


class AddTags(Op):
    """Write tags beside columns into schema.json, for whoever chooses columns by them, such as a model of your own.

    Tags are added to those that a column has, each once, and stay with it through the ops that follow. They change
    nothing else: no value, null or not, and no row is looked at. A column is prepared because an op computes it or because
    it has a role, with tags or without. Nothing is fitted.
    """

    columnwise: ClassVar[bool] = True
    acts: ClassVar[bool] = False

    op: Literal["AddTags"] = "AddTags"
    columns: Annotated[Names, Field(min_length=1)]
    """Columns to tag; lists too."""
    tags: Annotated[Names, Field(min_length=1)]
    """The tags: any words."""

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Describe the columns with their tags."""
        return {
            name: replace(spec, tags=tuple(dict.fromkeys((*spec.tags, *self.tags)))) for name, spec in inputs.items()
        }
