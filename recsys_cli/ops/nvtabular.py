"""Workflows of NVTabular 23.08 on Arrow columns: frames of pandas (CPU) or cuDF (GPU), without nulls and lists.

pandas converts integers with nulls to floats. NVTabular fails on null lists and all-null columns, and encodes a null in
a list as unseen.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cli.errors import DataError
from recsys_cli.features.schema import FIRST, NULL, UNSEEN
from recsys_cli.features.spec import is_list
from recsys_cli.ops.values import Values, canonical, caster, from_arrow, null_mask, set_column, to_arrow
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


def of_frame(frame: Any) -> pa.Table:
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
        return of_frame(workflow.transform(frame))


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
        rows = set_column(rows, name, to_arrow(values.with_data(data, nulls), _shaped(values, kind)))
    return rows


def _shaped(values: Values, kind: pa.DataType) -> pa.DataType:
    return kind if values.offsets is None else pa.list_(kind)


@dataclass(frozen=True)
class Plain:
    """Values and null mask.

    Attributes:
        values: Values, (N,), with the zero of the type for nulls.
        nulls: Null mask, (N,); None without nulls.
    """

    values: pa.Array
    nulls: npt.NDArray[np.bool_] | None

    @property
    def valid(self) -> pa.Array:
        """The non-null values."""
        return self.values if self.nulls is None else self.values.filter(pa.array(~self.nulls))


def plain(values: pa.Array, column: str) -> Plain:
    """Convert scalar values to their plain type; NaN becomes null.

    Raises:
        DataError: The type is unsupported, or a string has a NUL character.
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = plain_type(values.type, column)
    if pa.types.is_null(values.type):
        return Plain(pa.array(np.zeros(len(values), dtype=np.int8)), np.ones(len(values), dtype=bool))
    values = canonical(values.cast(kind))
    if pa.types.is_string(kind) and pc.any(pc.match_substring(values, "\0")).as_py():
        # The hash table of pandas ends strings at NUL, so two strings would get one id.
        raise DataError(
            f"column {column} has strings with a NUL character, unsupported by etl.engine=nvtabular",
            hint="use etl.engine=polars",
        )
    if values.null_count == 0:
        return Plain(values, None)
    nulls = values.is_null().to_numpy(zero_copy_only=False)
    return Plain(values.fill_null(zero(kind)), nulls)


def plain_type(kind: pa.DataType, column: str) -> pa.DataType:
    """Return the type for a scalar type inside NVTabular."""
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_integer(kind) or types.is_float32(kind) or types.is_float64(kind):
        return kind
    if types.is_boolean(kind) or types.is_null(kind):
        return pa.int8()
    if types.is_string(kind) or types.is_large_string(kind):
        return pa.string()
    if types.is_date32(kind) or types.is_time32(kind):
        return pa.int32()
    if types.is_temporal(kind):
        return pa.int64()
    raise DataError(
        f"column {column} has type {kind}, unsupported by etl.engine=nvtabular", hint="use etl.engine=polars"
    )


def zero(kind: pa.DataType) -> pa.Scalar:
    """Return the placeholder for nulls of a plain type."""
    value: Any = "" if pa.types.is_string(kind) else 0
    return pa.scalar(value, kind)


def raw_type(kind: pa.DataType) -> pa.DataType:
    """Return the raw type, with `string` for every kind of string."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.string() if pa.types.is_large_string(kind) else kind


def raw(values: pa.Array, kind: pa.DataType, column: str) -> pa.Array:
    """Convert plain values back to the raw type of their column."""
    if pa.types.is_null(kind):
        return pa.nulls(len(values))
    # A group-by in pandas widens integers, but dates need int32.
    return values.cast(plain_type(kind, column)).cast(raw_type(kind))


def elements(values: pa.ChunkedArray) -> tuple[pa.Array, npt.NDArray[np.int32] | None]:
    """Return the flat values, and the list offsets (N + 1) or None. Null lists become empty."""
    array = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    if not is_list(array.type):
        return array, None
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    return array.flatten(), np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)


VALUE = "value"
"""Column name in frames for counting, because NVTabular derives file names and scratch columns from column names."""


def count_values(column: pa.ChunkedArray, name: str, folder: Path) -> pa.Table:
    """Count values by a Categorify, null included, as `value` and `count`, in the raw type and any order."""
    values, _ = elements(column)
    prepared = plain(values, name)
    valid = prepared.valid
    if len(valid) == 0:
        counts = pa.table({VALUE: valid, "count": pa.array([], pa.int64())})
    else:
        counts = _count(valid, folder)
        if (total := pc.sum(counts.column("count")).as_py()) != len(valid):
            raise DataError(
                f"counting {name} gave {total} values instead of {len(valid)}", hint="use etl.engine=polars"
            )
    distinct = raw(counts.column(VALUE).combine_chunks(), values.type, name)
    num_nulls = len(values) - len(valid)
    table = pa.table({VALUE: distinct, "count": counts.column("count").cast(pa.int64()).combine_chunks()})
    if not num_nulls:
        return table
    nulls = pa.table({VALUE: pa.nulls(1, distinct.type), "count": pa.array([num_nulls], pa.int64())})
    return pa.concat_tables([table, nulls])


def _count(values: pa.Array, folder: Path) -> pa.Table:
    import pyarrow.parquet as pq

    with quiet():
        fit([VALUE] >> nvtabular().ops.Categorify(out_path=str(folder)), {VALUE: values})
    counts = pq.read_table(folder / "categories" / f"unique.{VALUE}.parquet", columns=[VALUE, f"{VALUE}_size"])
    return counts.rename_columns([VALUE, "count"])


class Encoder:
    """Encodes values in a workflow of one Categorify op; nulls are handled outside.

    Unseen values get buckets by the hash function common to all engines. NVTabular's own hashes differ between pandas (CPU)
    and cuDF (GPU), and its buckets precede the vocabulary.
    """

    def __init__(self, vocabularies: Mapping[str, pa.Table], folder: Path, *, num_buckets: int = 0) -> None:
        self._num_buckets = num_buckets
        self._ends = {name: FIRST + table.num_rows for name, table in vocabularies.items()}
        self._positions = {name: f"c{position}" for position, name in enumerate(vocabularies)}
        values = {
            name: plain(table.column("value").combine_chunks(), name).values for name, table in vocabularies.items()
        }
        self._nonempty = {name for name, each in values.items() if len(each)}
        with quiet():
            vocabs = {
                self._positions[name]: to_frame({"v": values[name]})["v"] for name in values if name in self._nonempty
            }
            self._op = nvtabular().ops.Categorify(vocabs=vocabs, out_path=str(folder), dtype=np.int32)

    def columns(self, table: pa.Table) -> pa.Table:
        """Encode the columns with a vocabulary; the others stay."""
        flat: dict[str, pa.Array] = {}
        encoded: dict[str, pa.Array] = {}
        for name in table.column_names:
            if name in self._positions:
                values, offsets = elements(table.column(name))
                if offsets is None:
                    flat[name] = values
                else:
                    encoded[name] = pa.ListArray.from_arrays(pa.array(offsets), self({name: values})[name])
        encoded |= self(flat)
        return pa.table({name: encoded.get(name, table.column(name)) for name in table.column_names})

    def __call__(self, columns: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
        """Return int32 ids of scalar columns, (N,) each: NULL for nulls, UNSEEN or a bucket for other values."""
        prepared = {name: plain(values, name) for name, values in columns.items()}
        inputs = {self._positions[name]: column.values for name, column in prepared.items() if name in self._nonempty}
        encoded = run(list(inputs) >> self._op, inputs) if any(map(len, inputs.values())) else pa.table({})
        from recsys_cli.ops.hash_bucket import hashed_ids

        ids = {}
        for name, column in prepared.items():
            position = self._positions[name]
            if position in encoded.column_names:
                codes = encoded.column(position).to_numpy().astype(np.int32)
            else:
                codes = np.full(len(column.values), UNSEEN, dtype=np.int32)
            if self._num_buckets:
                hashed = hashed_ids(columns[name], self._num_buckets, first=self._ends[name])
                codes = np.where(codes == UNSEEN, hashed, codes)
            if column.nulls is not None:
                codes = np.where(column.nulls, np.int32(NULL), codes)
            ids[name] = pa.array(codes)
        return ids
