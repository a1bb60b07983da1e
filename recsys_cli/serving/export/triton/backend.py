"""Models of Triton's Python backend: scores of raw rows, and recommendations, from the bundle of the repository."""

from __future__ import annotations

import json
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from recsys_cli.errors import ConfigError, DataError, RecsysError
from recsys_cli.serving.bundle import load_bundle
from recsys_cli.serving.export.triton.tensors import LENGTH, NULL, Array, Tensor, Tensors, columns_of, strings
from recsys_cli.serving.query import Answer, Query
from recsys_cli.serving.served import ServedModel


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
