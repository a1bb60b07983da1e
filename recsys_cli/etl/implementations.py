"""The implementation of an op: from a fixed table for built-in ops, from `Op.modules` for ops of other packages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from recsys_cli.errors import ConfigError
from recsys_cli.ops.op import Op
from recsys_cli.ops.steps import Lookup
from recsys_cli.plugins import FIX_PLUGIN, belongs, guard, guarded


@dataclass(frozen=True)
class ForeignModule:
    """The implementation of an op of another package, with guarded functions.

    Attributes:
        module: The module.
        title: Name of the op and the module in messages.
    """

    module: ModuleType
    title: str

    def __getattr__(self, name: str) -> Any:
        """Return a function of the module; its exceptions become a ConfigError."""
        with self.guarded():
            return guard(getattr(self.module, name), f"{self.title} failed")

    def guarded(self) -> AbstractContextManager[None]:
        """Convert the exceptions of a block that runs code of the module."""
        return guarded(f"{self.title} failed", hint=FIX_PLUGIN)

    def check_tables(self, tables: Mapping[str, object], names: Iterable[str]) -> None:
        """Check the names of aggregates or states.

        Raises:
            ConfigError: One is missing.
        """
        if missing := [name for name in names if name not in tables]:
            raise ConfigError(f"{self.title} returns no table {', '.join(map(repr, missing))}")

    def check_rows(self, positions: npt.NDArray[np.int64] | None, num_rows: int) -> None:
        """Check that an implementation keeps number and order of rows.

        Args:
            positions: The positions 0 to N - 1 after the op, shape (N,); None if the op drops the column.
            num_rows: Number of rows before the op.

        Raises:
            ConfigError: It does not.
        """
        if positions is None:
            problem = "drops columns of other ops"
        elif len(positions) != num_rows:
            problem = f"changes the number of rows from {num_rows:,} to {len(positions):,}"
        elif not np.array_equal(positions, np.arange(num_rows)):
            problem = "changes the order of rows, or a column of other ops"
        else:
            return
        hint = "keep all rows in order, and all columns; only an op of phase 'rows' may drop rows"
        raise ConfigError(f"{self.title} {problem}", hint=hint)


def load(op: Op | Lookup, role: str, modules: Mapping[type, str]) -> Any:
    """Import the module that computes an op; a `ForeignModule` for an op of another package.

    Args:
        op: The op.
        role: Name of an engine, "aggregator" or "filter".
        modules: The modules of built-in ops in this role.

    Raises:
        ConfigError: The op has no implementation, or its module cannot be imported.
    """
    if (own := modules.get(type(op))) is not None:
        return import_module(own)
    if (reason := refusal(op, role, modules)) is not None:
        raise ConfigError(reason)
    declared = op.modules[role]
    with guarded(f"{op.name}: cannot load {declared!r}"):
        return ForeignModule(import_module(declared), f"the op {op.name} ({declared})")


def refusal(op: Op | Lookup, role: str, modules: Mapping[type, str]) -> str | None:
    """Return the reason why an op has no implementation in a role, or None. Arguments as in `load`."""
    if type(op) in modules:
        return None
    if role in op.modules:
        declared, owner = op.modules[role], type(op).__module__
        outside = (
            f"{op.name} names {declared!r} as its {role}, outside its package {owner.partition('.')[0]} and not trusted"
        )
        return None if belongs(declared, owner) else outside
    if role == "filter":
        return f"{op.name} filters no rows" if op.phase != "rows" else _undeclared(op, "filter")
    if role == "aggregator":
        return f"{op.name} learns nothing from train" if not op.fitted else _undeclared(op, "aggregator")
    if op.phase == "rows":
        return f"{op.name} chooses rows before the split, outside the engines"
    if op.phase == "draw":
        return f"{op.name} samples rows after the split, outside the engines"
    if not op.acts and not op.fitted:
        return f"{op.name} only describes columns, so the engines have nothing to compute"
    return _undeclared(op, f"implementation for the engine {role}")


def _undeclared(op: Op | Lookup, role: str) -> str:
    declared = ", ".join(sorted(op.modules)) or "none"
    return f"{op.name} has no {role}; its package declares: {declared}"
