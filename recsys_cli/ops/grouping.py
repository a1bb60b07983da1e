"""Groups of columns, for ops with statistics per group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from recsys_cli.errors import ConfigError
from recsys_cli.ops.op import Op

Group = str | tuple[str, ...]
"""A column, or several for a group by their combination."""


def members(group: Group) -> tuple[str, ...]:
    """Return the columns of a group."""
    return (group,) if isinstance(group, str) else group


def name_of(group: Group) -> str:
    """Return the name of a group, a part of its output names."""
    return "_".join(members(group))


def columns_of(groups: Iterable[Group]) -> tuple[str, ...]:
    """Return the columns of several groups, without duplicates."""
    return tuple(dict.fromkeys(column for group in groups for column in members(group)))


def check_groups(groups: Iterable[Group], outputs: Iterable[str]) -> None:
    """Refuse empty groups, repeated columns and duplicate outputs."""
    for group in groups:
        if not members(group) or len(set(members(group))) < len(members(group)):
            raise ConfigError(f"{list(members(group))} is no group of columns; name at least one, each once")
    names = list(outputs)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"the outputs {', '.join(twice)} are repeated; use two ops with a Rename between them")


class GroupOp(Op):
    """Op with statistics for each group of `columns`."""

    fitted: ClassVar[bool] = True

    if TYPE_CHECKING:  # each op has the field at its own position among the others
        columns: tuple[Group, ...]

    @property
    def values(self) -> tuple[str, ...]:
        """Numeric columns of the statistics."""
        raise NotImplementedError

    @property
    def reads(self) -> tuple[str, ...]:
        """Group columns and columns of the statistics."""
        return tuple(dict.fromkeys((*columns_of(self.columns), *self.values)))

    @property
    def reads_to_apply(self) -> tuple[str, ...]:
        """Group columns."""
        return columns_of(self.columns)

    @property
    def learns(self) -> tuple[str, ...]:
        """Names of the groups."""
        return tuple(map(name_of, self.columns))
