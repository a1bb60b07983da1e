"""Sampled negatives for implicit feedback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from recsys_cli.errors import ConfigError
from recsys_cli.features.spec import Spec
from recsys_cli.ops.op import Op, Phase
from recsys_cli.packages import pa


class NegativeSampling(Op):
    """Add sampled negatives to each interaction: rows with the same user and an unseen item of train.

    Negatives are sampled after the split, uniformly or by popularity in train, and join the split of their interaction. A
    negative of train avoids the user's interactions in train, one of valid those in train and valid, one of test those in
    all splits. A negative of train may be a held-out interaction, because its exclusion would leak the held-out data. A
    held-out interaction may repeat one of train, a negative never does; put Deduplicate first if repeats are no targets.
    Sampling depends only on the seed and the order of the interactions; users with all items get no negatives.
    Nulls: a negative has the user and `context` of its interaction and the sampled item; all else is null. Put the
    join of item features, and ops on them, after this op. Interactions without a user or an item get no negatives.
    Fitted: nothing. Other ops are fitted on interactions only, except TargetEncoding, as it needs both labels.
    Output: `output`, int8, 1 for negatives and 0 for interactions; never an input of the model. Derive a label from it,
    such as {op: LambdaOp, expression: "sampled == 0", output: label, dtype: int8}. Rankings and popularity ignore
    negatives.
    """

    phase: ClassVar[Phase] = "draw"

    op: Literal["NegativeSampling"] = "NegativeSampling"
    user: str
    """User column."""
    item: str
    """Item column."""
    num_negatives: int = Field(4, ge=1, le=100)
    """Number of negatives per interaction."""
    distribution: Literal["uniform", "popularity"] = "uniform"
    """Sampling distribution: uniform over the items of train, or proportional to their interactions in train."""
    context: tuple[str, ...] = ()
    """Other columns copied from the interaction, such as the time."""
    splits: tuple[Literal["train", "valid", "test"], ...] = ("train", "valid", "test")
    """Splits with negatives."""
    output: str = "sampled"
    """Name of the column that marks negatives."""
    seed: int = Field(42, ge=0)
    """Sampling seed."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The user, the item and the context."""
        return (self.user, self.item, *self.context)

    @property
    def marks_samples(self) -> str:
        """The output."""
        return self.output

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the spec of the mark."""
        for name in (self.user, self.item):
            if inputs[name].ragged:
                raise ConfigError(f"{name!r} holds a list in each row; single values are needed")
        return {self.output: Spec(pa.int8(), dtype="int8")}
