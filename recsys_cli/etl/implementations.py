"""The implementation of an op: from a fixed table for built-in ops, from `Op.modules` for ops of other packages."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from recsys_cli.errors import ConfigError
from recsys_cli.features.ops.op import Op
from recsys_cli.features.steps import Lookup
from recsys_cli.plugins import guarded


def load(op: Op | Lookup, role: str, modules: Mapping[type, str]) -> Any:
    """Import the module that computes an op.

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
        return import_module(declared)


def refusal(op: Op | Lookup, role: str, modules: Mapping[type, str]) -> str | None:
    """Return the reason why an op has no implementation in a role, or None. Arguments as in `load`."""
    if type(op) in modules or role in op.modules:
        return None
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
