"""The implementation of an op in the NVTabular engine. The rows of one of another package are checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import pyarrow as pa

from recsys_cli.errors import ConfigError
from recsys_cli.etl.implementations import ForeignModule, load
from recsys_cli.etl.nvtabular_engine.ops import MODULES
from recsys_cli.features.columns import POSITION
from recsys_cli.ops.op import Op
from recsys_cli.ops.steps import Lookup


class Computing(Protocol):
    """Interface of an op's module in this engine; `learn` only for fitted ops."""

    def apply(self, op: Any, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:
        """Add or change the op's columns; number and order of rows stay."""

    def learn(self, op: Any, rows: pa.Table, folder: Path) -> Mapping[str, pa.Table]:
        """Return the partial aggregates of a shard."""


def computing(op: Op | Lookup) -> Computing:
    """Return the implementation of an op.

    Raises:
        ConfigError: The op has none, or its module cannot be imported.
    """
    module = load(op, "nvtabular", MODULES)
    return ForeignComputing(module) if isinstance(module, ForeignModule) else cast("Computing", module)


@dataclass(frozen=True)
class ForeignComputing:
    """The implementation of an op of another package.

    Attributes:
        module: The module of the op.
    """

    module: ForeignModule

    def apply(self, op: Any, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:
        """Compute the op's columns.

        Raises:
            ConfigError: The op fails, or changes number or order of rows.
        """
        numbered = rows.append_column(POSITION, pa.array(np.arange(rows.num_rows)))
        after = self.module.apply(op, state, numbered, folder)
        if not isinstance(after, pa.Table):
            raise ConfigError(f"{self.module.title} returns {type(after).__name__} instead of a pyarrow.Table")
        positions = after.column(POSITION).to_numpy() if POSITION in after.column_names else None
        self.module.check_rows(positions, rows.num_rows)
        return after.drop_columns([POSITION])

    def learn(self, op: Any, rows: pa.Table, folder: Path) -> Mapping[str, pa.Table]:
        """Return the partial aggregates of a shard.

        Raises:
            ConfigError: The op fails.
        """
        tables: Mapping[str, pa.Table] = self.module.learn(op, rows, folder)
        self.module.check_tables(tables, op.learns)
        return tables
