"""The only module that imports NVTabular, and that knows whether its frames are pandas (CPU) or cuDF (GPU)."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, partial
from types import ModuleType
from typing import Any

import pyarrow as pa

_ALONE = threading.Lock()
quiet = partial(warnings.catch_warnings, action="ignore")
"""Silences the warnings of NVTabular and of its dependencies: they are about its own code."""


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
    return dispatch.convert_data(table, cpu=device() == "cpu")


def device() -> str:
    """Return where NVTabular works in this process: "gpu" where it found cuDF and a GPU at its import, else "cpu"."""
    return "cpu" if nvtabular().dispatch.get_lib().__name__ == "pandas" else "gpu"


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


@contextmanager
def alone() -> Iterator[None]:
    """Keep NVTabular's work in this thread, one at a time, and free what it kept of vocabularies in this process.

    Inside a task of a cluster it would find the cluster, send parts of the task there, and wait for the thread that it is in.
    """
    with _ALONE:
        with quiet():
            import dask
            from merlin.core.utils import set_dask_client
            from merlin.io.worker import clean_worker_cache
        set_dask_client(None)
        try:
            with dask.config.set(scheduler="synchronous"):
                yield
        finally:
            set_dask_client("auto")
            with suppress(KeyError):  # on a worker it does not look whether there is anything
                clean_worker_cache("cats")
