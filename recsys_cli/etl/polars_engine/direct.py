"""Categorify without a query: raw columns are counted and encoded in Arrow memory.

A Polars query would copy their strings twice, at more cost than counting and encoding.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Literal, cast

import pyarrow as pa

from recsys_cli.etl.cold_keys import locate
from recsys_cli.etl.counts import count
from recsys_cli.etl.engine import Aggregates, PassSteps
from recsys_cli.etl.polars_engine import count_check
from recsys_cli.etl.polars_engine.categorify import encode
from recsys_cli.etl.polars_engine.encoder import encoder_of
from recsys_cli.features.columns import ROW_WEIGHT, TRAIN_ROW
from recsys_cli.features.spec import is_list, is_text
from recsys_cli.ops import Categorify
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.op import Op
from recsys_cli.ops.program import COLD, Gather, Locate, PlanStep


@dataclass
class Direct:
    """The steps done without a query, and the remaining ones.

    Attributes:
        rows: The rows, with the encoded columns as ids.
        rest: Steps that need a query over the rows, in order.
    """

    rows: pa.Table
    learnt: Aggregates = field(default_factory=dict)
    rest: list[tuple[PlanStep, Literal["fit", "apply"]]] = field(default_factory=list)

    @classmethod
    def of(cls, walk: PassSteps, fitted: FittedPlan, rows: pa.Table) -> Direct:
        """Run each Categorify and Locate without a dependency on a remaining step."""
        done = cls(rows)
        read: set[str] = set()
        written: set[str] = set()
        for step, verb in walk:
            is_raw = not written & set(step.op.reads) and done._supports(step.op)
            if is_raw and isinstance(step.op, Locate):
                done._locate(step.op, fitted)
            elif is_raw and verb == "fit" and ROW_WEIGHT not in rows.column_names:
                done._count(step)
            elif is_raw and verb == "apply" and not read & set(step.op.reads):
                done._encode(step, fitted)
            else:
                done.rest.append((step, verb))
                read |= set(step.op.reads)
                written |= set(step.writes) if verb == "apply" else set()
        return done

    @property
    def query_input(self) -> pa.Table:
        """The input columns of the remaining steps."""
        read = {ROW_WEIGHT, TRAIN_ROW}.union(*(step.op.reads for step, _ in self.rest))
        names = [name for name in self.rows.column_names if name in read]
        # A table without columns has no rows.
        return self.rows.select(names or self.rows.column_names[:1])

    def _supports(self, op: Op | Gather | Locate) -> bool:
        supported = bool(op.encodes) or isinstance(op, Locate)
        return supported and all(_is_plain(self.rows.schema.field(name).type) for name in op.reads)

    def _count(self, step: PlanStep) -> None:
        for name in dict.fromkeys(step.op.encodes):
            values = self._values(name)
            values = values.flatten() if is_list(values.type) else values
            counts = count(values)
            count_check.check(name, counts, len(values))
            self.learnt[step.index, name] = counts

    def _encode(self, step: PlanStep, fitted: FittedPlan) -> None:
        op = cast("Categorify", step.op)
        for name in op.learns:
            encoder = encoder_of(fitted.state[step.index, op.vocabulary_of(name)])
            ids = encode(self._values(name), partial(encoder, num_buckets=op.num_buckets))
            self.rows = self.rows.set_column(self.rows.schema.get_field_index(name), name, ids)

    def _locate(self, op: Locate, fitted: FittedPlan) -> None:
        rows = locate(self._values(op.key), fitted.state[COLD, op.key])
        self.rows = self.rows.append_column(op.output, pa.array(rows))

    def _values(self, name: str) -> pa.Array:
        column = self.rows.column(name)
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _is_plain(kind: pa.DataType) -> bool:
    """Whether a Polars query would leave values of this type unchanged."""
    if pa.types.is_list(kind):
        return _is_plain(kind.value_type) and not pa.types.is_list(kind.value_type)
    return is_text(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)
