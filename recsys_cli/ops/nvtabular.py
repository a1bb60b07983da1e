"""Workflows of NVTabular 23.08 on Arrow columns: frames of pandas (CPU) or cuDF (GPU), without nulls and lists.

pandas converts integers with nulls to floats. NVTabular fails on null lists and all-null columns, and encodes a null in
a list as unseen.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cli.errors import DataError
from recsys_cli.features.schema import FIRST, NULL, UNSEEN
from recsys_cli.ops.values import Values, caster, element, from_arrow, hashes_of, null_mask, set_column, to_arrow
from recsys_cli.ops.vocabulary import bucket_ids
from recsys_cli.packages import pc

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


def schema(frame: Any) -> Any:
    """Return the workflow schema of a frame without list columns."""
    library = nvtabular()
    return library.Schema([library.ColumnSchema(name, dtype=frame[name].dtype) for name in frame.columns])


def run(graph: Any, columns: Mapping[str, pa.Array]) -> pa.Table:
    """Transform columns (at least one row, no nulls) by a workflow without fitted state."""
    with quiet():
        frame = to_frame(columns)
        workflow = nvtabular().Workflow(graph).fit_schema(schema(frame))
        return nvtabular().dispatch.to_arrow(workflow.transform(frame))


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


def run_on_numbers(
    rows: pa.Table, types: Mapping[str, pa.DataType], make: Callable[[Any, Mapping[str, str]], Any]
) -> pa.Table:
    """Compute columns by a workflow of one op; null and NaN stay null, and lists are computed by element.

    Args:
        rows: The rows.
        types: Types of the calculation and of the results, by column.
        make: Creates the op from the library and from column name in the workflow → in the rows.
    """
    for name, kind in types.items():
        values = caster(kind)(from_arrow(rows.column(name)))
        nulls = null_mask(values)
        data = values.data if nulls is None else np.where(nulls, values.data.dtype.type(0), values.data)
        if len(data):
            with quiet():
                graph = ["c"] >> make(nvtabular(), {"c": name})
            data = run(graph, {"c": pa.array(data)}).column("c").cast(kind, safe=False).to_numpy()
        if nulls is not None and data.dtype.kind == "f":
            data, nulls = np.where(nulls, np.nan, data), None
        rows = set_column(
            rows, name, to_arrow(values.with_data(data, nulls), kind if values.offsets is None else pa.list_(kind))
        )
    return rows


def plain(values: Values, kind: pa.DataType, column: str) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Return values of a type that pandas keeps, with a zero for null and NaN, and the mask of these.

    Raises:
        DataError: The type is unsupported, or a string has a NUL character.
    """
    held, types = element(kind), pa.types
    nulls = null_mask(values)
    mask = np.zeros(len(values.data), dtype=bool) if nulls is None else nulls
    if types.is_string(held) or types.is_large_string(held):
        texts = pa.array(np.where(mask, "", values.data).tolist(), pa.string())
        if pc.any(pc.match_substring(texts, "\0")).as_py():
            # The hash table of pandas ends strings at NUL, so two strings would get one id.
            raise _unsupported(f"column {column} has strings with a NUL character")
        return texts, mask
    if values.data.dtype == object:
        raise _unsupported(f"column {column} has type {held}")
    data = values.data.astype(np.int8) if types.is_boolean(held) else values.data
    return pa.array(np.where(mask, data.dtype.type(0), data + data.dtype.type(0))), mask  # -0.0 + 0.0 is 0.0


def _unsupported(problem: str) -> DataError:
    return DataError(f"{problem}, unsupported by etl.engine=nvtabular", hint="use etl.engine=polars")


VALUE = "value"
"""Column name in frames for counting, because NVTabular derives file names and scratch columns from column names."""


def count_values(column: pa.ChunkedArray, name: str, folder: Path) -> pa.Table:
    """Count values by a Categorify, null included, as `value` and `count`, in the raw type and any order."""
    data, nulls = plain(from_arrow(column), column.type, name)
    valid = data.filter(pa.array(~nulls))
    distinct, counts = _counted(valid, folder) if len(valid) else (valid, pa.array([], pa.int64()))
    if (total := pc.sum(counts).as_py() or 0) != len(valid):
        raise DataError(f"counting {name} gave {total} values instead of {len(valid)}", hint="use etl.engine=polars")
    held = element(column.type)
    kind = pa.string() if pa.types.is_large_string(held) else held
    values = to_arrow(Values(distinct.to_numpy(zero_copy_only=False)), kind)
    if nulls.any():
        values = pa.concat_arrays([values, pa.nulls(1, kind)])
        counts = pa.concat_arrays([counts, pa.array([nulls.sum()], pa.int64())])
    return pa.table({VALUE: values, "count": counts})


def _counted(values: pa.Array, folder: Path) -> tuple[pa.Array, pa.Array]:
    import pyarrow.parquet as pq

    with quiet():
        fit([VALUE] >> nvtabular().ops.Categorify(out_path=str(folder)), {VALUE: values})
    counts = pq.read_table(folder / "categories" / f"unique.{VALUE}.parquet", columns=[VALUE, f"{VALUE}_size"])
    distinct, sizes = (column.combine_chunks() for column in counts.itercolumns())
    return distinct, sizes.cast(pa.int64())


def encode(column: pa.ChunkedArray, name: str, vocabulary: pa.Table, folder: Path, num_buckets: int) -> pa.Array:
    """Return the ids of values, int32, by a Categorify with a given vocabulary; lists by element.

    Nulls are handled outside. Unseen values get buckets by the hash function common to all engines: NVTabular's own hashes
    differ between pandas (CPU) and cuDF (GPU), and its buckets precede the vocabulary.
    """
    values = from_arrow(column)
    data, nulls = plain(values, column.type, name)
    ids = np.full(len(data), UNSEEN, dtype=np.int32)
    if vocabulary.num_rows and not nulls.all():
        known = vocabulary.column("value")
        with quiet():
            frame = to_frame({"v": plain(from_arrow(known), known.type, name)[0]})
            op = nvtabular().ops.Categorify(vocabs={"c": frame["v"]}, out_path=str(folder), dtype=np.int32)
        ids = run(["c"] >> op, {"c": data}).column("c").to_numpy().astype(np.int32)
    if num_buckets:
        unseen = ids == UNSEEN
        ids[unseen] = bucket_ids(hashes_of(values.data[unseen]), num_buckets, FIRST + vocabulary.num_rows)
    ids[nulls] = NULL
    return to_arrow(values.with_data(ids), pa.int32() if values.offsets is None else pa.list_(pa.int32()))
