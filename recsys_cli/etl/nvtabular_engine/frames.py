"""Access to NVTabular and its frames, pandas (CPU) or cuDF (GPU)."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, partial
from types import ModuleType
from typing import Any

import pyarrow as pa

_LOCK = threading.Lock()
quiet = partial(warnings.catch_warnings, action="ignore")
"""Suppresses the warnings of NVTabular and its dependencies about their own code."""


@cache
def nvtabular() -> ModuleType:
    """Import the library, once per process: it takes seconds."""
    with quiet():
        import nvtabular as library
        import nvtabular.ops

    return library


def to_frame(columns: Mapping[str, pa.Array]) -> Any:
    """Convert Arrow columns to a pandas or cuDF frame."""
    return nvtabular().dispatch.convert_data(pa.table(dict(columns)), cpu=device() == "cpu")


def device() -> str:
    """Return the device of NVTabular in this process: "gpu" with cuDF and a GPU at its import, else "cpu"."""
    return "cpu" if nvtabular().dispatch.get_lib().__name__ == "pandas" else "gpu"


def to_arrow(frame: Any) -> pa.Table:
    """Convert a frame to Arrow."""
    return nvtabular().dispatch.to_arrow(frame)


def schema(frame: Any) -> Any:
    """Return the workflow schema of a frame without list columns."""
    library = nvtabular()
    return library.Schema([library.ColumnSchema(name, dtype=frame[name].dtype) for name in frame.columns])


def run(graph: Any, columns: Mapping[str, pa.Array]) -> pa.Table:
    """Transform columns (at least one row, no nulls) by a workflow without fitted state."""
    with quiet():
        frame = to_frame(columns)
        workflow = nvtabular().Workflow(graph).fit_schema(schema(frame))
        return to_arrow(workflow.transform(frame))


def fit(graph: Any, columns: Mapping[str, pa.Array]) -> None:
    """Fit a workflow on columns (at least one row, no nulls)."""
    library = nvtabular()
    with quiet():
        frame = to_frame(columns)
        library.Workflow(graph).fit(library.Dataset(frame, schema=schema(frame)))


@contextmanager
def single_threaded() -> Iterator[None]:
    """Run NVTabular in this thread, one call at a time, and clear its cache of vocabularies afterwards.

    In a task of a Dask cluster, NVTabular would submit work to that cluster and deadlock on its own thread.
    """
    with _LOCK:
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
            with suppress(KeyError):  # raised on a Dask worker without a cache
                clean_worker_cache("cats")
