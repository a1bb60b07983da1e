"""TargetEncoding: a group by the mean of the target among the other rows of the group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from recsys_cli.features.hashing import below, hash_counters, mix
from recsys_cli.features.ops.grouping import Group, GroupOp, check_groups, name_of
from recsys_cli.features.ops.op import numbers, scalars
from recsys_cli.features.spec import Spec

FOLDS = ".folds"
"""Suffix of a group's second table: what rows of train get, by group and fold."""
MEANS = ".means"
"""Name of the table with the mean of each target, in one row."""
_STREAM = 5


class TargetEncoding(GroupOp):
    """Replace a group, such as an item or a user and a weekday, by the mean of a target in it, drawn to the overall mean.

    Fitted: of each group the mean of each target over train, smoothed: (sum + p_smooth · mean) / (count + p_smooth),
    where `mean` is that of all of train, or `target_mean`. A row of train is encoded by the rows of the other folds
    alone, so its own target is not in it; rows of every other split, and new rows, by all of train, and need no target.
    The fold of a row is a hash of `fold_seed` and its number: the same for every engine and machine.
    Null and NaN in a target do not count. In a group's column they are a value like any other: a group of their own.
    A group that train (or, on train, another fold) does not have, and one without a target, gets the mean; if train has
    no target at all, null. Encoded ids may be grouped by as well as raw values. A list column is an error.
    A constant target encodes everything by that constant; a train split of one row encodes it by the target's mean.
    With `kfold` 1 rows of train see their own target, as in NVTabular: only for comparisons.
    Output: float32, one column `TE_<columns>_<target>` per group and target; the inputs stay. Columns of joined tables
    are brought to the interactions, where the output lives.
    Other than NVTabular 23.08: held-out rows do not use folds, and rows with a null are counted.
    """

    learns_from_drawn: ClassVar[bool] = True
    numbers_rows: ClassVar[bool] = True

    op: Literal["TargetEncoding"] = "TargetEncoding"
    columns: tuple[Group, ...] = Field(min_length=1)
    """Columns to encode; a list of columns is encoded as one group."""
    target: str | Annotated[tuple[str, ...], Field(min_length=1)]
    """Column of numbers whose mean is taken, or several."""
    kfold: int = Field(default=3, ge=1, lt=1 << 16)
    """Number of folds that train is dealt to."""
    fold_seed: int = 42
    """Decides which rows are in which fold."""
    p_smooth: float = Field(default=20, ge=0, allow_inf_nan=False)
    """How many rows of the overall mean are added to each group."""
    target_mean: float | None = Field(default=None, allow_inf_nan=False)
    """Overall mean to use instead of that of train, for all targets."""

    @property
    def targets(self) -> tuple[str, ...]:
        """The columns whose mean is taken."""
        return (self.target,) if isinstance(self.target, str) else self.target

    @property
    def values(self) -> tuple[str, ...]:
        """The targets: an encoded row needs none."""
        return self.targets

    @property
    def states(self) -> tuple[str, ...]:
        """Names of the groups, of what folds of them get, and of the means."""
        folds = tuple(name + FOLDS for name in self.learns) if self.kfold > 1 else ()
        return (*self.learns, *folds, MEANS)

    def written(self, group: Group) -> tuple[str, ...]:
        """Return the names of a group's outputs, one per target."""
        return tuple(f"TE_{name_of(group)}_{target}" for target in self.targets)

    def folds(self, rows: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
        """Return the fold of each row of train, given the rows' numbers."""
        return below(hash_counters(rows, mix(self.fold_seed, _STREAM)), self.kfold).astype(np.uint32)

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Describe the columns of encodings."""
        scalars(inputs)
        numbers({name: inputs[name] for name in self.targets})
        names = [name for group in self.columns for name in self.written(group)]
        check_groups(self.columns, [*names, *self.states])
        return {name: Spec(pa.float64()) for name in names}
