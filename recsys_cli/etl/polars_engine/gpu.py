"""GPU execution of the Polars engine by cudf-polars, imported by the first query."""

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
    """A part of a query for the GPU or the CPU, with its name in messages."""

    name: str
    apply: Apply


@dataclass
class Gpu:
    """Runs queries on the GPU, with the CPU as fallback and a warning for each part on the CPU."""

    emit: Emit = ignore
    _refused: set[str] = field(default_factory=set)

    def __getstate__(self) -> dict[str, Any]:
        """Drop the listener: it is local to the process."""
        return {"emit": ignore, "_refused": self._refused}

    def collect(self, query: pl.LazyFrame, *, name: str) -> pl.DataFrame:
        """Run a query, on the CPU after a GPU failure under the same name."""
        result = None if name in self._refused else self._attempt([Unit(name, lambda frame: frame)], query)
        return query.collect(engine="in-memory") if result is None else result

    def apply(self, units: Sequence[Unit], frame: pl.DataFrame) -> pl.DataFrame:
        """Apply parts of a query to rows; number and order of rows stay."""
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
        """Run parts as one query; on failure, bisect to find the unsupported ones."""
        if not units:
            return frame
        query = frame.lazy()
        for unit in units:
            query = unit.apply(query)
        result = self._attempt(units, query)
        if result is not None and result.height == frame.height:
            return result if result.get_column(POSITION).is_sorted() else result.sort(POSITION)
        if len(units) == 1:
            return _on_cpu(units, frame)
        half = len(units) // 2
        return self._run(units[half:], self._run(units[:half], frame))

    def _attempt(self, units: Sequence[Unit], query: pl.LazyFrame) -> pl.DataFrame | None:
        # The streaming executor of cudf-polars loses or doubles groups (cudf#22932); a shard fits into memory.
        engine = pl.GPUEngine(executor="in-memory", raise_on_fail=True)
        try:
            return query.collect(engine=engine)
        except Exception as error:  # any error: the CPU retries, and an error in the data recurs there
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
    """Return the unsupported features of an error message, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # cudf-polars lists unsupported features, one per line.
    listed = [line.removeprefix("- ") for line in lines if line.startswith("- ")]
    return "; ".join(listed) or f"{type(error).__name__}: {lines[0] if lines else ''}"
