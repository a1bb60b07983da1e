"""Models of Triton's Python backend: raw columns as tensors, scores of raw rows, and recommendations."""

from __future__ import annotations

import json
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from recsys_cli.errors import ConfigError, DataError, RecsysError
from recsys_cli.features.spec import is_list
from recsys_cli.ops.values import element
from recsys_cli.serving.bundle import load_bundle
from recsys_cli.serving.query import Answer, Query
from recsys_cli.serving.raw_values import reader
from recsys_cli.serving.served import ServedModel

Array = npt.NDArray[Any]
Tensors = Mapping[str, Array]
"""Tensors of a request by name, each with the rows of the request as its first dimension."""

NULL = ".null"
"""Suffix of an optional BOOL tensor in the shape of a column: true for null."""
LENGTH = ".length"
"""Suffix of an optional INT64 tensor (N, 1) of a list column: elements of each row before the padding; -1 for null."""
NUMPY = {"INT64": np.int64, "UINT64": np.uint64, "FP32": np.float32, "FP64": np.float64, "BOOL": np.bool_}
"""NumPy types of tensors; STRING is an array of bytes objects."""


@dataclass(frozen=True)
class Tensor:
    """A raw column of requests, or an output.

    Attributes:
        name: Name of the column.
        dtype: Triton type without its prefix `TYPE_`.
        ragged: Whether rows are lists.
        required: Whether requests need it; otherwise its absence means null.
        masked: Whether single values may be null.
    """

    name: str
    dtype: str
    ragged: bool = False
    required: bool = False
    masked: bool = True

    @classmethod
    def of(cls, name: str, kind: pa.DataType, *, required: bool = False) -> Tensor:
        """Return the tensor of a raw column by its Arrow type."""
        return cls(name, dtype_of(element(kind)), is_list(kind), required)

    def parts(self) -> Iterator[Tensor]:
        """Yield the tensor, its null mask, and the lengths of its lists."""
        yield self
        if self.masked:
            yield Tensor(self.name + NULL, "BOOL", self.ragged)
        if self.ragged:
            yield Tensor(self.name + LENGTH, "INT64")

    def read(self, given: Tensors, rows: int) -> Sequence[Any] | Array:
        """Return the column of a request: values by row, None for null, in Python types or as an array.

        Raises:
            DataError: A length is impossible, or a mask has another shape.
        """
        values = given.get(self.name)
        if values is None:
            return [None] * rows
        nulls = given.get(self.name + NULL)
        if nulls is not None and nulls.shape != values.shape:
            raise DataError(
                f"{self.name + NULL} has shape {list(nulls.shape)}, and {self.name} has {list(values.shape)}",
                hint="give a mask in the shape of the values",
            )
        masked = nulls is not None and bool(nulls.any())
        if not self.ragged:
            if self.dtype != "STRING" and not masked:
                return values.reshape(-1)
            return _plain(values.reshape(-1), nulls.reshape(-1) if masked and nulls is not None else None)
        lists = [_plain(row, nulls[at] if masked and nulls is not None else None) for at, row in enumerate(values)]
        lengths = given.get(self.name + LENGTH)
        return lists if lengths is None else self._cut(lists, lengths.reshape(-1).tolist(), values.shape[1])

    def _cut(self, lists: list[list[Any]], lengths: list[int], width: int) -> list[list[Any] | None]:
        if wrong := [length for length in lengths if not -1 <= length <= width]:
            raise DataError(
                f"{self.name + LENGTH} has {wrong[0]}, and the lists of {self.name} have {width} places",
                hint="give the number of elements before the padding, or -1 for null",
            )
        return [None if length < 0 else row[:length] for row, length in zip(lists, lengths, strict=True)]

    def write(self, kind: pa.DataType, values: Sequence[Any] | Array) -> dict[str, Array]:
        """Return the tensors of a column of an Arrow type from values as of JSON, None for null; the inverse of `read`.

        Raises:
            DataError: A value does not fit the type.
        """
        stored = reader(self.name, kind)(values)
        data, nulls = stored.data, stored.nulls
        if stored.offsets is None:
            if nulls is not None and nulls.all() and not self.required:
                return {}
            tensors = {self.name: self._cast(data, nulls).reshape(-1, 1)}
            return tensors if nulls is None else tensors | {self.name + NULL: nulls.reshape(-1, 1)}
        lengths = np.diff(stored.offsets)
        inside = np.arange(max(1, lengths.max(initial=0))) < lengths[:, None]
        padded: Array = np.full(inside.shape, b"" if self.dtype == "STRING" else 0, NUMPY.get(self.dtype, object))
        padded[inside] = self._cast(data, nulls)
        padded_by_name: dict[str, Array] = {self.name: padded, self.name + LENGTH: lengths.reshape(-1, 1)}
        if nulls is not None:
            mask = np.zeros(inside.shape, np.bool_)
            mask[inside] = nulls
            padded_by_name[self.name + NULL] = mask
        return padded_by_name

    def _cast(self, data: Array, nulls: Array | None) -> Array:
        if self.dtype != "STRING":
            return data.astype(NUMPY[self.dtype])
        present = np.zeros(len(data), np.bool_) if nulls is None else nulls
        return strings("" if null else value for value, null in zip(data.tolist(), present.tolist(), strict=True))


def columns_of(given: Tensors, tensors: Sequence[Tensor]) -> tuple[dict[str, Any], int]:
    """Return the columns of a request, and the number of its rows.

    Raises:
        DataError: There is no tensor, or one does not fit.
    """
    if not given:
        raise DataError("the request has no inputs", hint=f"give one of {', '.join(one.name for one in tensors)}")
    rows = len(next(iter(given.values())))
    return {one.name: one.read(given, rows) for one in tensors}, rows


def distinct(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return the tensors, if all names of their parts are distinct.

    Raises:
        ConfigError: Two parts have one name.
    """
    names = [part.name for one in tensors for part in one.parts()]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(
            f"column {', '.join(twice)} has the name of a null mask or of list lengths",
            hint="rename the column; the export to Triton adds .null and .length to the names of columns",
        )
    return tensors


def dtype_of(kind: pa.DataType) -> str:
    """Return the Triton type of values: times are integers in the unit of their type, decimals are text."""
    types = pa.types
    if types.is_boolean(kind):
        return "BOOL"
    if types.is_uint64(kind):
        return "UINT64"
    if types.is_integer(kind) or types.is_temporal(kind):
        return "INT64"
    if types.is_floating(kind):
        return "FP64" if types.is_float64(kind) else "FP32"
    return "STRING"


def strings(values: Any) -> Array:
    """Return values as an array of bytes objects."""
    encoded = [value if isinstance(value, bytes) else str(value).encode() for value in values]
    array = np.empty(len(encoded), object)
    array[:] = encoded
    return array


def _plain(values: Array, nulls: Array | None) -> list[Any]:
    """Return a row of values in Python types, None for null; bytes that are no UTF-8 stay."""
    plain = [_text(value) if isinstance(value, bytes) else value for value in values.tolist()]
    return plain if nulls is None else [None if null else value for value, null in zip(plain, nulls, strict=True)]


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def query_inputs(served: ServedModel) -> list[Tensor]:
    """Return the inputs: the fields of a query, all of them optional."""
    item = _id_type(served.items.values.type)
    return [
        Tensor("user", _id_type(served.users.values.type)),
        *(Tensor(name, item, ragged=True, masked=False) for name in ("history", "candidates", "exclude")),
        Tensor("k", "INT64", masked=False),
        Tensor("exclude_seen", "BOOL", masked=False),
        Tensor("where", "STRING"),
        Tensor("diversity", "FP32", masked=False),
    ]


def answer_outputs(served: ServedModel) -> list[Tensor]:
    """Return the outputs: items in order, padded to the widest answer of the request."""
    return [
        Tensor("item", _id_type(served.items.values.type), ragged=True),
        Tensor("title", "STRING", ragged=True),
        Tensor("score", "FP32", ragged=True),
        Tensor("length", "INT64"),
        Tensor("source", "STRING"),
        Tensor("note", "STRING"),
    ]


def queries_of(given: Tensors, inputs: Sequence[Tensor]) -> list[Query]:
    """Return the queries of a request, one per row.

    Raises:
        DataError: A tensor does not fit.
    """
    columns, rows = columns_of(given, inputs)
    plain = {name: values.tolist() if isinstance(values, np.ndarray) else values for name, values in columns.items()}
    return [
        Query(**{name: values[row] for name, values in plain.items() if values[row] is not None}) for row in range(rows)
    ]


def answer_tensors(answers: Sequence[Answer], id_dtype: str) -> dict[str, Array]:
    """Return the answers of a request as tensors; `length` has the items of each row before the padding."""
    lengths = np.array([[len(answer.items)] for answer in answers], np.int64)
    shape = (len(answers), max(1, int(lengths.max(initial=0))))
    is_text = id_dtype == "STRING"
    ids = np.full(shape, b"" if is_text else 0, object if is_text else np.int64)
    titles, scores = np.full(shape, b"", object), np.zeros(shape, np.float32)
    for row, answer in enumerate(answers):
        for column, item in enumerate(answer.items):
            ids[row, column] = str(item.item.id).encode() if is_text else item.item.id
            titles[row, column] = (item.item.title or "").encode()
            scores[row, column] = item.score
    return {
        "item": ids,
        "title": titles,
        "score": scores,
        "length": lengths,
        "source": strings(answer.source for answer in answers).reshape(-1, 1),
        "note": strings(answer.note or "" for answer in answers).reshape(-1, 1),
    }


def _id_type(kind: pa.DataType) -> str:
    return "INT64" if pa.types.is_integer(kind) and not pa.types.is_uint64(kind) else "STRING"


Outcome = dict[str, Array] | Exception
"""Tensors of the answer to a request, or its error."""


class BundleModel(ABC):
    """A model of the repository; one process and one thread per instance."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Load the bundle; an error ends the loading of the model with its message."""
        torch.set_num_threads(1)
        config = json.loads(args["model_config"])
        folder = Path(args["model_repository"], config["parameters"]["bundle"]["string_value"])
        self.recommender = load_bundle(Path(os.path.normpath(folder)))
        self.inputs = _columns([_tensor(entry) for entry in config["input"]])
        self.outputs = {one.name: one.dtype for one in map(_tensor, config["output"])}

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Answer requests; an error belongs to its request, and the others have their answers."""
        import triton_python_backend_utils as triton  # exists only inside of Triton

        given = [{tensor.name(): tensor.as_numpy() for tensor in request.inputs()} for request in requests]
        responses = []
        for outcome in self.outcomes(given):
            if isinstance(outcome, Exception):
                wrong_input = isinstance(outcome, ConfigError | DataError)
                code = triton.TritonError.INVALID_ARG if wrong_input else triton.TritonError.INTERNAL
                responses.append(triton.InferenceResponse(error=triton.TritonError(_message(outcome), code)))
            else:
                tensors = [triton.Tensor(name, values) for name, values in outcome.items()]
                responses.append(triton.InferenceResponse(tensors))
        return responses

    def outcomes(self, requests: Sequence[Tensors]) -> list[Outcome]:
        """Answer requests in one call of the model, or one by one after an error."""
        if len(requests) > 1:
            try:
                return list(self.answer(requests))
            except Exception as error:
                logging.getLogger(__name__).debug("a batch is answered one by one: %s", error)
        return [self._outcome(request) for request in requests]

    def _outcome(self, request: Tensors) -> Outcome:
        try:
            return self.answer([request])[0]
        except Exception as error:
            return error

    @abstractmethod
    def answer(self, requests: Sequence[Tensors]) -> list[dict[str, Array]]:
        """Answer requests in one call of the model."""


class ScoreModel(BundleModel):
    """Raw rows to scores."""

    def answer(self, requests: Sequence[Tensors]) -> list[dict[str, Array]]:
        """Score the rows of requests.

        Raises:
            DataError: A value does not fit its type.
        """
        parts = [columns_of(request, self.inputs) for request in requests]
        columns: dict[str, Any] = {one.name: _joined([part[one.name] for part, _ in parts]) for one in self.inputs}
        scores = self.recommender.score(columns)
        ends = np.cumsum([rows for _, rows in parts])[:-1]
        return [{"score": part.reshape(-1, 1)} for part in np.split(scores, ends)]


class RecommendModel(BundleModel):
    """Users or histories to the best items."""

    def answer(self, requests: Sequence[Tensors]) -> list[dict[str, Array]]:
        """Answer the queries of requests.

        Raises:
            ConfigError: A query is invalid.
        """
        parts = [queries_of(request, self.inputs) for request in requests]
        answers = iter(self.recommender.recommend(list(chain.from_iterable(parts))))
        return [answer_tensors([next(answers) for _ in part], self.outputs["item"]) for part in parts]


def _tensor(entry: Mapping[str, Any]) -> Tensor:
    """Return a tensor of the configuration, which has numbers as JSON numbers or as texts."""
    return Tensor(entry["name"], entry["data_type"].removeprefix("TYPE_"), int(entry["dims"][0]) < 0)


def _columns(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors without their null masks and lengths."""
    parts = {one.name + suffix for one in tensors for suffix in (NULL, LENGTH)}
    return [one for one in tensors if one.name not in parts]


def _joined(parts: Sequence[Sequence[Any] | Array]) -> Sequence[Any] | Array:
    """Return the values of one column of several requests."""
    if len(parts) == 1:
        return parts[0]
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    if len(arrays) == len(parts):
        return np.concatenate(arrays)
    return list(chain.from_iterable(part.tolist() if isinstance(part, np.ndarray) else part for part in parts))


def _message(error: Exception) -> str:
    if not isinstance(error, RecsysError):
        return f"{type(error).__name__}: {error}"
    return f"{error.message} ({error.hint})" if error.hint else error.message
