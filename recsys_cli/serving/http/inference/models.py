"""The two models of a bundle: NAME scores raw rows, NAME-topk ranks the catalog for users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from recsys_cli.serving.http.bodies import RecommendBody
from recsys_cli.serving.http.fleet import Deployment
from recsys_cli.serving.http.inference.tensors import Tensor, malformed
from recsys_cli.serving.http.problems import RequestError
from recsys_cli.serving.http.reading import parsed
from recsys_cli.serving.http.service import Service

TOP_K = "-topk"
"""Suffix of the names of ranking models."""
_TYPES = {
    "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64",
    "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64",
    "halffloat": "FP16", "float": "FP32", "double": "FP64", "bool": "BOOL",
}  # fmt: skip
"""Types of the protocol by Arrow type. Lists are JSON in BYTES; all others are text in BYTES."""
_TOP_K_INPUTS = (("user", "BYTES"), ("history", "BYTES"), ("k", "INT32"))
_TOP_K_OUTPUTS = (("item", "BYTES"), ("title", "BYTES"), ("score", "FP32"), ("length", "INT32"), ("source", "BYTES"))


def metadata(deployment: Deployment, *, top_k: bool) -> dict[str, Any]:
    """Return name, versions, inputs and outputs of a model."""
    if top_k:
        inputs = [{"name": name, "datatype": kind, "shape": [-1]} for name, kind in _TOP_K_INPUTS]
        wide = {"item", "title", "score"}
        outputs = [
            {"name": name, "datatype": kind, "shape": [-1, -1] if name in wide else [-1]}
            for name, kind in _TOP_K_OUTPUTS
        ]
    else:
        given = deployment.signature["inputs"]
        inputs = [{"name": one["name"], "datatype": _TYPES.get(one["type"], "BYTES"), "shape": [-1]} for one in given]
        outputs = [{"name": "score", "datatype": "FP32", "shape": [-1]}]
    name = deployment.name + (TOP_K if top_k else "")
    return {"name": name, "versions": [deployment.version], "platform": "recsys", "inputs": inputs, "outputs": outputs}


def find(service: Service, name: str, version: str | None = None) -> tuple[Deployment, bool]:
    """Return the bundle of a model, and whether the model ranks.

    Raises:
        RequestError: No model has the name and version.
    """
    names = {one.name: (one, False) for one in service.fleet.all}
    names = {one.name + TOP_K: (one, True) for one in service.fleet.all} | names
    if name not in names:
        raise RequestError(404, f"no model is named {name}", f"the models are {', '.join(sorted(names))}")
    deployment, top_k = names[name]
    if version not in {None, "", deployment.version}:
        raise RequestError(404, f"{name} has no version {version}", f"its version is {deployment.version}")
    return deployment, top_k


async def infer_scores(service: Service, deployment: Deployment, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Score the rows of the inputs."""
    kinds = {one["name"]: one["type"] for one in deployment.signature["inputs"]}
    columns = {tensor.name: _column(tensor, kinds.get(tensor.name, "")) for tensor in inputs}
    scores = await service.score(deployment, columns)
    return [Tensor("score", "FP32", (len(scores),), scores)]


def _column(tensor: Tensor, kind: str) -> list[Any]:
    """Return the values of a raw column; lists are JSON texts, or have a dimension of their own."""
    rows = tensor.rows
    if "list" not in kind:
        return rows
    if tensor.datatype == "BYTES" and len(tensor.shape) == 1:
        return [_list(text, tensor.name) for text in rows]
    return [row if isinstance(row, list) else [row] for row in rows]


def _list(text: str | None, name: str) -> list[Any] | None:
    if not text:
        return None
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, list):
        raise malformed(f"{name}: a value is no JSON list")
    return value


def _cut_offs(tensor: Tensor, number: int) -> list[int]:
    """Return the k of each row, from one value for all rows or one for each."""
    values = list(tensor.values)
    if len(values) not in {1, number} or any(type(value) is not int for value in values):
        raise malformed(f"k: give one whole number, or {number}")
    return values * number if len(values) == 1 else values


async def infer_top_k(service: Service, deployment: Deployment, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Rank the catalog for users or histories; short answers are filled up with empty items."""
    given: Mapping[str, Tensor] = {tensor.name: tensor for tensor in inputs}
    if unknown := given.keys() - {name for name, _ in _TOP_K_INPUTS}:
        raise malformed(f"unknown input {', '.join(sorted(unknown))}; the inputs are user, history, k")
    users = given["user"].rows if "user" in given else None
    histories = [_list(text, "history") for text in given["history"].rows] if "history" in given else None
    if users is None and histories is None:
        raise malformed("user or history is missing")
    number = len(users if users is not None else histories or ())
    if histories is not None and len(histories) != number:
        raise malformed(f"{number} users, {len(histories)} histories")
    service.check("rows", number, service.settings.batching.queue)
    cut_offs = _cut_offs(given["k"], number) if "k" in given else [10] * number
    bodies = [
        parsed(
            RecommendBody,
            {
                "user": users[row] if users else None,
                "history": histories[row] if histories else None,
                "k": cut_offs[row],
            },
        )
        for row in range(number)
    ]
    answers = await service.answers(deployment, [service.query(body, deployment) for body in bodies]) if bodies else []
    k = max((len(answer.items) for answer in answers), default=0)
    items = [[*answer.items, *[None] * (k - len(answer.items))] for answer in answers]
    flat = [one for row in items for one in row]
    values: dict[str, tuple[tuple[int, ...], list[Any]]] = {
        "item": ((number, k), ["" if one is None else str(one.item.id) for one in flat]),
        "title": ((number, k), ["" if one is None else one.item.title or "" for one in flat]),
        "score": ((number, k), [0.0 if one is None else one.score for one in flat]),
        "length": ((number,), [len(answer.items) for answer in answers]),
        "source": ((number,), [answer.source for answer in answers]),
    }
    return [Tensor(name, kind, *values[name]) for name, kind in _TOP_K_OUTPUTS]
