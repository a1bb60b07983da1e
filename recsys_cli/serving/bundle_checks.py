"""Checks of a bundle's files, and its arrays: content that does not fit is an error of the data, with the name of the file."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import ValidationError
from pydantic_core import from_json
from safetensors import safe_open
from torch import Tensor
from torch.nn import Module
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_parameter_registration_hook,
)

from recsys_cli.config.document import Document
from recsys_cli.config.problems import describe
from recsys_cli.errors import ConfigError, DataError, MissingArtifactError, RecsysError, TrainingError
from recsys_cli.features.columns import SHARED_ID, row_column
from recsys_cli.features.parquet import read_parquet
from recsys_cli.features.schema import FIRST, Column
from recsys_cli.ops.vocabulary import VocabularyIndex
from recsys_cli.workspace import MAX_JSON, Bundle

_MOST_SHOWN = 400
"""Maximum characters of a reason."""
_SLACK = 4
"""Parameters of a model in construction by those of its weights: some are registered twice, or quantized later."""


@contextmanager
def naming(path: Path, bundle: Bundle) -> Iterator[None]:
    """Name a file in all errors about its content.

    Raises:
        DataError: An error came up.
    """
    try:
        yield
    except Exception as error:
        kind = MissingArtifactError if isinstance(error, MissingArtifactError) else DataError
        if isinstance(error, RecsysError) and not isinstance(error, kind | ConfigError | TrainingError):
            raise
        reason = _reason(error, path)
        raise kind(reason if str(bundle.folder) in reason else f"{path}: {reason}", hint=bundle.remake) from error


def _reason(error: Exception, path: Path) -> str:
    """Return what is wrong with a file, in one line without the words of a library's own report."""
    cause = error.__cause__ if isinstance(error, DataError) else error
    if isinstance(cause, ValidationError):
        first = cause.errors(include_url=False)[0]
        return (
            first["msg"]
            if first["type"] == "json_invalid"
            else describe(cause, None, Document(from_json(path.read_bytes())))[0]
        )
    if isinstance(error, RuntimeError):
        return "its parts do not fit each other"
    if isinstance(error, KeyError) and not isinstance(error, RecsysError):
        return f"{error} is missing"
    return " ".join(str(error).split())[:_MOST_SHOWN] or type(error).__name__


def check_kinds(bundle: Bundle) -> None:
    """Check that a bundle has plain files only, and no endless JSON: nothing of it is read before.

    A pipe, a device or a link elsewhere could be read without an end.

    Raises:
        DataError: An entry is something else.
    """
    for folder, folders, files in os.walk(bundle.folder):
        for name in (*folders, *files):
            path = Path(folder, name)
            found = path.lstat()
            if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
                raise DataError(f"{path} is no plain file", hint="copy the bundle with the files that its links name")
            if path.suffix == ".json" and found.st_size > MAX_JSON:
                raise DataError(f"{path}: {found.st_size:,} bytes are too many for a bundle", hint=bundle.remake)


@contextmanager
def no_larger_than_weights(bundle: Bundle) -> Iterator[None]:
    """Stop the build of a model that is larger than its file of weights: the options of a model may have any size.

    Raises:
        ValueError: It has far more parameters or buffers.
    """
    weights = bundle.weights
    with naming(weights, bundle), safe_open(weights, framework="pt") as file:
        left = {"tensors": _SLACK * len(file.keys()) + 1_000, "values": _SLACK * weights.stat().st_size + 1_000_000}

    def count(_: Module, name: str, tensor: Tensor | None) -> None:
        left["tensors"] -= 1
        left["values"] -= 0 if tensor is None else tensor.numel()
        if min(left.values()) < 0:
            raise ValueError(
                f"the model has far more {min(left, key=left.__getitem__)} than {weights.name}, up to {name}"
            )

    hooks = register_module_parameter_registration_hook(count), register_module_buffer_registration_hook(count)
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def check_tables(bundle: Bundle, indexes: Mapping[str, VocabularyIndex]) -> None:
    """Check that all values and ids have a row in the tables of the model and in the dimension tables.

    Raises:
        DataError: A value or an id has none, or a file is damaged.
    """
    data = bundle.data
    for column in data.schema.categorical:
        if (index := indexes.get(str(column.vocabulary))) is not None:
            with naming(data.vocabulary(str(column.vocabulary)), bundle):
                _check_vocabulary(data.vocabulary(str(column.vocabulary)), index, column)
        index, shared, keys = indexes.get(row_column(column.name)), data.table(column.name), data.cold_keys(column.name)
        cardinality = int(column.cardinality or 0)
        if index is None:
            continue
        if shared.is_file():
            with naming(shared, bundle):
                names = pq.read_schema(shared).names
                if SHARED_ID in names:
                    _check_ids(read_parquet(shared, [SHARED_ID])[SHARED_ID], 0, cardinality)
                num_rows = pq.read_metadata(shared).num_rows
                if len(index) and num_rows != cardinality + len(index):
                    raise ValueError(f"{num_rows} rows for {cardinality} ids and {len(index)} cold keys")
        if keys.is_file():
            with naming(keys, bundle):
                rows = read_parquet(keys, ["row"])["row"]
                if len(rows) != len(index):
                    raise ValueError(f"{len(rows)} cold keys for an index of {len(index)}")
                _check_ids(rows, cardinality, cardinality + len(index))


def _check_vocabulary(path: Path, index: VocabularyIndex, column: Column) -> None:
    number = len(read_parquet(path, ["value"])["value"])
    if number != len(index) or FIRST + number + column.buckets > int(column.cardinality or 0):
        raise ValueError(f"{number} values for an index of {len(index)} and {column.cardinality} ids")


def _check_ids(ids: pa.ChunkedArray, start: int, stop: int) -> None:
    """Check that ids are whole numbers from start to below stop."""
    if not pa.types.is_integer(ids.type) or ids.null_count:
        raise ValueError(f"ids have the type {ids.type}, and {ids.null_count} nulls")
    limits = pc.min_max(ids).as_py()
    if len(ids) and not start <= limits["min"] <= limits["max"] < stop:
        raise ValueError(f"the ids from {limits['min']} to {limits['max']} are not from {start} to {stop - 1}")


def read_array(
    path: Path, *dtypes: str, length: int | None = None, least: int = 0, below: int | None = None, mapped: bool = False
) -> npt.NDArray[Any]:
    """Read a one-dimensional array of a .npy file; object arrays (pickle) are refused. Ids are from `least` to below `below`.

    Raises:
        ValueError: The array has another type or shape, or an id is out of range.
    """
    # The header of a mapped file is read first, so that a wrong shape allocates nothing.
    try:
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (EOFError, ValueError):  # the command line takes EOFError for Ctrl-D
        raise ValueError(f"{path}: no NumPy array") from None
    if array.ndim != 1 or array.dtype.name not in dtypes or not array.dtype.isnative:
        raise ValueError(f"{path}: {array.dtype} of shape {array.shape} is no list of {' or '.join(dtypes)}")
    if length is not None and len(array) != length:
        raise ValueError(f"{path}: {len(array)} values are no {length}")
    if below is not None and len(array) and not least <= array.min() <= array.max() < below:
        raise ValueError(f"{path}: the ids from {array.min()} to {array.max()} are not from {least} to {below - 1}")
    return array if mapped else np.array(array)


def read_offsets(path: Path, *, length: int | None = None) -> npt.NDArray[Any]:
    """Memory-map the offsets of lists, ascending from 0; arguments and errors as of `read_array`."""
    offsets = read_array(path, "int64", length=length, mapped=True)
    if not len(offsets) or offsets[0] or (offsets[1:] < offsets[:-1]).any():
        raise ValueError(f"{path}: the offsets do not ascend from 0")
    return offsets
