"""Groups of columns, for ops that learn something of the rows that agree in them: how they are written, named and checked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from recsys_cli.errors import ConfigError
from recsys_cli.features.ops.op import Op

Group = str | tuple[str, ...]
"""A column, or several that make a group together."""


def members(group: Group) -> tuple[str, ...]:
    """Return the columns of a group."""
    return (group,) if isinstance(group, str) else group


def name_of(group: Group) -> str:
    """Return the name of a group, which is part of the names of its outputs."""
    return "_".join(members(group))


def columns_of(groups: Iterable[Group]) -> tuple[str, ...]:
    """Return the columns of several groups, each once."""
    return tuple(dict.fromkeys(column for group in groups for column in members(group)))


def check_groups(groups: Iterable[Group], outputs: Iterable[str]) -> None:
    """Check that groups are groups, and that no two of them write the same column.

    Raises:
        ConfigError: They are not, or do.
    """
    for group in groups:
        if not members(group) or len(set(members(group))) < len(members(group)):
            raise ConfigError(f"{list(members(group))} is no group of columns: name one or more, each once")
    written = list(outputs)
    twice = sorted({name for name in written if written.count(name) > 1})
    if twice:
        raise ConfigError(f"it would write {', '.join(twice)} twice; let two ops do it, with a Rename between them")


class GroupOp(Op):
    """An op that learns something of each group of its `columns`."""

    fitted: ClassVar[bool] = True

    if TYPE_CHECKING:  # each op has the field at its own position among the others
        columns: tuple[Group, ...]

    @property
    def values(self) -> tuple[str, ...]:
        """The columns of numbers of which it learns by group."""
        raise NotImplementedError

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns of the groups, and those of which it learns."""
        return tuple(dict.fromkeys((*columns_of(self.columns), *self.values)))

    @property
    def reads_to_apply(self) -> tuple[str, ...]:
        """Columns of the groups: a row is given what is known."""
        return columns_of(self.columns)

    @property
    def learns(self) -> tuple[str, ...]:
        """Names of the groups."""
        return tuple(map(name_of, self.columns))
