"""NegativeSampling: items that a user has not met so far, for feedback that knows only what was met."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from recsys_cli.errors import ConfigError
from recsys_cli.features.ops.op import Op, Phase
from recsys_cli.features.spec import Spec


class NegativeSampling(Op):
    """Add to each interaction some rows with the same user and an item that the user has not met so far.

    Rows are drawn after the split, into the split of their interaction, from the items of train: each of them alike, or each
    as often as it comes in train. A row for train avoids the user's interactions of train alone, a row for valid those of train
    and valid, a row for test those of all three: if train avoided what is held out, an item never drawn would be in test.
    A held-out interaction may repeat one of train, a drawn row never does; where repeats are not to be predicted, let
    Deduplicate come first.
    The draw depends on the seed and the order of the interactions alone. A user who has met every item gets none.
    A drawn row has the interaction's user and `context`, the drawn item, and null in all other columns; features of the item
    come by a join, so let ops that need them come after it. An interaction without a user or an item (null) gets no drawn row.
    Nothing is fitted here, and nothing is fitted on drawn rows but TargetEncoding, which needs both kinds: counts, means and
    vocabularies are those of the interactions. Rankings and popularity leave drawn rows out as well.
    Output: `output`, int8, 1 in drawn rows and 0 in interactions, which the model never sees; a label follows from it, such
    as {op: LambdaOp, expression: "sampled == 0", output: label, dtype: int8}.
    """

    phase: ClassVar[Phase] = "draw"

    op: Literal["NegativeSampling"] = "NegativeSampling"
    user: str
    """Column with the user."""
    item: str
    """Column with the item."""
    num_negatives: int = Field(4, ge=1, le=100)
    """Drawn rows for each interaction."""
    distribution: Literal["uniform", "popularity"] = "uniform"
    """Which items: each alike, or each as often as it comes in train."""
    context: tuple[str, ...] = ()
    """Other columns that a drawn row takes from its interaction, such as the time."""
    splits: tuple[Literal["train", "valid", "test"], ...] = ("train", "valid", "test")
    """Splits that get drawn rows."""
    output: str = "sampled"
    """Name of the column that tells drawn rows from interactions."""
    seed: int = Field(42, ge=0)
    """Another seed draws other items."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The user, the item, and what goes with them."""
        return (self.user, self.item, *self.context)

    @property
    def marks_samples(self) -> str:
        """Its output."""
        return self.output

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Describe the column that tells drawn rows apart.

        Raises:
            ConfigError: User or item is a list.
        """
        for name in (self.user, self.item):
            if inputs[name].ragged:
                raise ConfigError(f"{name!r} holds a list in each row; single values are needed")
        return {self.output: Spec(pa.int8(), dtype="int8")}
