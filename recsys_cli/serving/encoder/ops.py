"""Modules of the steps on NumPy, imported on demand, and the refusals of other ops.

Each module has `compiled(op, state, types)`: it returns the step as a function of columns, and sets the types of its outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, Protocol, cast

import pyarrow as pa

from recsys_cli import ops
from recsys_cli.errors import ConfigError
from recsys_cli.ops.op import Op
from recsys_cli.ops.steps import Gather, Locate, Lookup
from recsys_cli.plugins import FIX_PLUGIN, belongs, guard, guarded
from recsys_cli.serving.encoder.values import Apply, Types

ROLE = "encoder"
"""Key of the implementation in `ForeignOp.modules`."""
MODULES: dict[type, str] = {
    ops.Bucketize: "recsys_cli.serving.encoder.bucketize",
    ops.Categorify: "recsys_cli.serving.encoder.categorify",
    ops.Clip: "recsys_cli.serving.encoder.clip",
    ops.FillMedian: "recsys_cli.serving.encoder.fill_median",
    ops.FillMissing: "recsys_cli.serving.encoder.fill_missing",
    ops.HashBucket: "recsys_cli.serving.encoder.hash_bucket",
    ops.HashedCross: "recsys_cli.serving.encoder.hashed_cross",
    ops.JoinGroupby: "recsys_cli.serving.encoder.join_groupby",
    ops.LambdaOp: "recsys_cli.serving.encoder.lambda_op",
    ops.ListSlice: "recsys_cli.serving.encoder.list_slice",
    ops.LogOp: "recsys_cli.serving.encoder.log_op",
    ops.Normalize: "recsys_cli.serving.encoder.normalize",
    ops.NormalizeMinMax: "recsys_cli.serving.encoder.normalize_min_max",
    ops.ReduceDtypeSize: "recsys_cli.serving.encoder.reduce_dtype_size",
    ops.Rename: "recsys_cli.serving.encoder.rename",
    ops.TargetEncoding: "recsys_cli.serving.encoder.target_encoding",
    Gather: "recsys_cli.serving.encoder.gather",
    Locate: "recsys_cli.serving.encoder.locate",
}


class Encoding(Protocol):
    """Interface of an op's module."""

    def compiled(self, op: Any, state: Mapping[str, pa.Table], types: Types) -> Apply:
        """Return the op as a function of columns; `types` gets the types of its outputs."""


def refusal(op: Op | Lookup) -> str | None:
    """Return the reason why an op has no values for single rows, or None."""
    if type(op) in MODULES:
        return None
    if ROLE in op.modules:
        return _outside(op, op.modules[ROLE])
    if getattr(op, "drops_only", False):
        return f"{op.name} only drops rows, so single rows skip it"
    if op.phase == "rows":
        return f"{op.name} reads other rows; bring its output columns"
    if op.phase == "draw":
        return f"{op.name} samples rows of a data set"
    if getattr(op, "joined_by", None):
        return f"{op.name} joins a table; the tables by id have its columns"
    if not op.acts:
        return f"{op.name} only describes columns"
    declared = ", ".join(sorted(op.modules)) or "none"
    return f"{op.name} has no implementation for single rows ({ROLE}); its package declares: {declared}"


def load(op: Op | Lookup) -> Encoding:
    """Import the module of an op.

    Raises:
        ConfigError: The op works on no single rows, or its module cannot be imported.
    """
    if (own := MODULES.get(type(op))) is not None:
        return cast("Encoding", import_module(own))
    if (reason := refusal(op)) is not None:
        raise ConfigError(reason, hint="remove the op from features.ops, or the columns that depend on it")
    declared = op.modules[ROLE]
    with guarded(f"{op.name}: cannot load {declared!r}"):
        return ForeignEncoding(import_module(declared), f"the op {op.name} ({declared}) failed")


@dataclass(frozen=True)
class ForeignEncoding:
    """The module of an op of another package; its exceptions become a ConfigError.

    Attributes:
        module: The module.
        title: Start of the message.
    """

    module: ModuleType
    title: str

    def compiled(self, op: Any, state: Mapping[str, pa.Table], types: Types) -> Apply:
        """Return the op as a function of columns."""
        with guarded(self.title, hint=FIX_PLUGIN):
            apply: Apply = guard(self.module.compiled(op, state, types), self.title)
        return apply


def _outside(op: Op | Lookup, declared: str) -> str | None:
    package = type(op).__module__
    if belongs(declared, package):
        return None
    return (
        f"{op.name} names {declared!r} as its {ROLE}, outside its package {package.partition('.')[0]} and not trusted"
    )
