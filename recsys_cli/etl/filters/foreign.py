"""Filters of other packages, with their rows checked in each pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recsys_cli.errors import ConfigError
from recsys_cli.etl.filters.flow import Derived, Flow, OpContext
from recsys_cli.etl.implementations import ForeignModule
from recsys_cli.features.columns import ROW_NUMBER
from recsys_cli.ops.op import Op


def choose(module: ForeignModule, op: Op, rows: Flow, context: OpContext) -> ForeignRows:
    """Return the rows of a filter of another package.

    Raises:
        ConfigError: The filter fails, or returns no rows.
    """
    chosen = module.choose(op, rows, context)
    if not isinstance(chosen, Flow):
        raise ConfigError(
            f"{module.title} returns {type(chosen).__name__} instead of a Flow of recsys_cli.etl.filters.flow"
        )
    return ForeignRows(chosen, module)


@dataclass(frozen=True)
class ForeignRows(Derived):
    """The rows of a filter of another package.

    Attributes:
        rows: The rows.
        module: The module of the op.
    """

    rows: Flow
    module: ForeignModule

    def schema(self) -> pa.Schema:
        """Return the names and types of the columns."""
        with self.module.guarded():
            return self.rows.schema()

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows, or some of their columns.

        Raises:
            ConfigError: The filter fails, or changes the order of rows.
        """
        read = None if columns is None else list(dict.fromkeys([*columns, ROW_NUMBER]))
        last = -1
        with self.module.guarded():
            for batch in self.rows.batches(read):
                numbers = batch.column(ROW_NUMBER).to_numpy()
                if (np.diff(numbers, prepend=last) <= 0).any():
                    raise ConfigError(
                        f"{self.module.title} changes the order of rows, or repeats rows",
                        hint="yield each row at most once, in the order of the input, with its row number",
                    )
                last = numbers[-1] if len(numbers) else last
                yield batch if columns is None else batch.select(list(columns))
