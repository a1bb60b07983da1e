"""The Polars engine on a GPU: each query goes to cudf-polars; what cannot run there runs on the CPU, and that is said once.

Nothing of cudf-polars is imported before a query is: what is installed is told by package metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from recsys_cli.events import Emit, Message, ignore
from recsys_cli.features.columns import POSITION

Apply = Callable[[pl.LazyFrame], pl.LazyFrame]


@dataclass(frozen=True)
class Unit:
    """A part of a query that may run on the GPU or on the CPU.

    Attributes:
        name: How a message names it.
        apply: Adds it to a query.
    """

    name: str
    apply: Apply


@dataclass
class Gpu:
    """Runs queries on the GPU, and what it cannot run on the CPU.

    Attributes:
        emit: Told what runs on the CPU.
    """

    emit: Emit = ignore
    _refused: set[str] = field(default_factory=set)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the listener behind: on another process nobody would hear it."""
        return {"emit": ignore, "_refused": self._refused}

    def collect(self, query: pl.LazyFrame, *, name: str) -> pl.DataFrame:
        """Return a query's answer."""
        found = None if name in self._refused else self._attempt([Unit(name, lambda frame: frame)], query)
        return query.collect(engine="in-memory") if found is None else found

    def apply(self, units: Sequence[Unit], frame: pl.DataFrame) -> pl.DataFrame:
        """Send rows through parts of a query, one after the other; rows keep their number and their order."""
        frame = frame.with_columns(pl.Series(POSITION, np.arange(frame.height, dtype=np.int64)))
        run: list[Unit] = []
        for unit in units:
            if unit.name in self._refused:
                frame = _on_cpu([unit], self._run(run, frame))
                run = []
            else:
                run.append(unit)
        return self._run(run, frame).drop(POSITION)

    def _run(self, units: Sequence[Unit], frame: pl.DataFrame) -> pl.DataFrame:
        """Run parts together, or where that fails each half, until it is known which of them do not run."""
        if not units:
            return frame
        query = frame.lazy()
        for unit in units:
            query = unit.apply(query)
        found = self._attempt(units, query)
        if found is not None and found.height == frame.height:
            return found if found.get_column(POSITION).is_sorted() else found.sort(POSITION)
        if len(units) == 1:
            return _on_cpu(units, frame)
        half = len(units) // 2
        return self._run(units[half:], self._run(units[:half], frame))

    def _attempt(self, units: Sequence[Unit], query: pl.LazyFrame) -> pl.DataFrame | None:
        # The streaming executor of cudf-polars has lost and doubled groups (cudf#22932); a shard fits into memory.
        engine = pl.GPUEngine(executor="in-memory", raise_on_fail=True)
        try:
            return query.collect(engine=engine)
        except Exception as error:  # whatever it is: the CPU is asked next, and an error in the data comes again there
            if len(units) == 1:
                self._refused.add(units[0].name)
                self.emit(Message(f"{units[0].name} runs on the CPU: {_reason(error)}", "warning"))
            return None


def _on_cpu(units: Sequence[Unit], frame: pl.DataFrame) -> pl.DataFrame:
    query = frame.lazy()
    for unit in units:
        query = unit.apply(query)
    return query.collect()


def _reason(error: Exception) -> str:
    """Return the part of an error that says what the GPU cannot do, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # cudf-polars lists what it does not support, one a line.
    listed = [line.removeprefix("- ") for line in lines if line.startswith("- ")]
    return "; ".join(listed) or f"{type(error).__name__}: {lines[0] if lines else ''}"
