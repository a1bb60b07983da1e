"""Out-of-fold means of a target by group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from recsys_cli.features.hashing import below, hash_counters, mix
from recsys_cli.features.spec import Spec
from recsys_cli.ops.grouping import Group, GroupOp, check_groups, members, name_of
from recsys_cli.ops.op import numbers, scalars

FOLDS = ".folds"
"""Suffix of a group's second table: out-of-fold encodings by group and fold."""
MEANS = ".means"
"""Name of the table with the mean of each target, in one row."""
_STREAM = 5


class TargetEncoding(GroupOp):
    """Encode a group, such as an item or a user and a weekday, by the smoothed mean of a target.

    Fitted: the mean of each target by group over train, smoothed: (sum + p_smooth · mean) / (count + p_smooth), with the
    mean over train or `target_mean`. A train row is encoded from the other folds, without its own target; rows of other
    splits and new rows from all of train, without a target. The fold is a hash of `fold_seed` and the row number,
    independent of engine and machine. `kfold` 1 includes a row's own target, as in NVTabular: for comparisons only.
    Nulls: null and NaN of a target are excluded; in a group column they are a group of their own. A group absent from
    train (for a train row, from the other folds) or without a target gets the mean; without any target, null. Encoded
    ids and raw values can be grouped.
    Lists: refused.
    Output: float32, `TE_<columns>_<target>` for each group and target, next to the inputs. Columns of joined tables are
    first joined to the interactions, the home of the output.
    NVTabular 23.08: differs in two points. Here held-out rows use no folds, and rows with a null are counted.
    """

    fits_on_sampled: ClassVar[bool] = True
    needs_row_numbers: ClassVar[bool] = True

    op: Literal["TargetEncoding"] = "TargetEncoding"
    columns: tuple[Group, ...] = Field(min_length=1)
    """Columns to encode; a nested list is one group by a combination."""
    target: str | Annotated[tuple[str, ...], Field(min_length=1)]
    """Target column of numbers, or several."""
    kfold: int = Field(default=3, ge=1, lt=1 << 16)
    """Number of folds of train."""
    fold_seed: int = 42
    """Seed of the assignment of rows to folds."""
    p_smooth: float = Field(default=20, ge=0, allow_inf_nan=False)
    """Smoothing: weight of the overall mean, in rows."""
    target_mean: float | None = Field(default=None, allow_inf_nan=False)
    """Overall mean for all targets, in place of that of train."""

    @property
    def targets(self) -> tuple[str, ...]:
        """The target columns."""
        return (self.target,) if isinstance(self.target, str) else self.target

    @property
    def values(self) -> tuple[str, ...]:
        """The targets; the fitted op needs none."""
        return self.targets

    def exposed(self, output: str) -> tuple[str, ...]:
        """Return the group columns; with `kfold` 1 a row's own target is the user's choice."""
        return next(members(group) for group in self.columns if output in self.written(group))

    @property
    def states(self) -> tuple[str, ...]:
        """Names of the groups, of their out-of-fold tables and of the means."""
        folds = tuple(name + FOLDS for name in self.learns) if self.kfold > 1 else ()
        return (*self.learns, *folds, MEANS)

    def written(self, group: Group) -> tuple[str, ...]:
        """Return the output names of a group, one per target."""
        return tuple(f"TE_{name_of(group)}_{target}" for target in self.targets)

    def folds(self, rows: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
        """Return the fold of each train row by row number."""
        return below(hash_counters(rows, mix(self.fold_seed, _STREAM)), self.kfold).astype(np.uint32)

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the specs of the encodings."""
        scalars(inputs)
        numbers({name: inputs[name] for name in self.targets})
        names = [name for group in self.columns for name in self.written(group)]
        check_groups(self.columns, [*names, *self.states])
        return {name: Spec(pa.float64()) for name in names}
