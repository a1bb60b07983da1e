"""The one place that imports NVTabular, and that knows whether its frames are pandas (CPU) or cuDF (GPU)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

import pyarrow as pa


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the warnings of NVTabular and of what it is built on to itself: they are about its own code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@cache
def nvtabular() -> ModuleType:
    """Return the library; importing it takes seconds."""
    with quiet():
        import nvtabular as library
        import nvtabular.ops

    return library


def to_frame(columns: Mapping[str, pa.Array]) -> Any:
    """Return a frame of the library's own kind."""
    dispatch = nvtabular().dispatch
    table = pa.table(dict(columns))
    return dispatch.convert_data(table, cpu=dispatch.get_lib().__name__ == "pandas")


def to_arrow(frame: Any) -> pa.Table:
    """Return a frame's columns as Arrow."""
    return nvtabular().dispatch.to_arrow(frame)


def schema(frame: Any) -> Any:
    """Describe a frame for a workflow: names and types, no lists."""
    library = nvtabular()
    return library.Schema([library.ColumnSchema(name, dtype=frame[name].dtype) for name in frame.columns])


def run(graph: Any, columns: Mapping[str, pa.Array]) -> pa.Table:
    """Send columns, without nulls and at least one row of them, through a workflow that has nothing to fit."""
    with quiet():
        frame = to_frame(columns)
        workflow = nvtabular().Workflow(graph).fit_schema(schema(frame))
        return to_arrow(workflow.transform(frame))


def forget() -> None:
    """Free what NVTabular keeps of vocabularies in this process."""
    from merlin.io.worker import clean_worker_cache

    clean_worker_cache("cats")
