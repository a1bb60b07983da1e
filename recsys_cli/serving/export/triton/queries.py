"""Queries for recommendations from tensors, and answers as tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from recsys_cli.serving.export.triton.tensors import Array, Tensor, Tensors, columns_of, strings
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
