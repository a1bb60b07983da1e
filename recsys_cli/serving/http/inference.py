"""The Open Inference Protocol, version 2: JSON and binary tensors, the two models of a bundle, and their routes."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from recsys_cli import __version__
from recsys_cli.serving.http.bodies import RecommendBody
from recsys_cli.serving.http.fleet import Deployment
from recsys_cli.serving.http.problems import RequestError, json_response
from recsys_cli.serving.http.reading import Route, apart, check_number_of_values, content_of, parsed
from recsys_cli.serving.http.service import Service

DTYPES: Mapping[str, Any] = {
    "BOOL": np.bool_, "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64,
    "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64,
    "FP16": np.float16, "FP32": np.float32, "FP64": np.float64,
}  # fmt: skip
BINARY = "inference-header-content-length"
"""Header with the length of the JSON in front of binary tensors."""
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True)
class Tensor:
    """A tensor with its values in row-major order; the type BYTES has text."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    values: Sequence[Any]

    @property
    def rows(self) -> list[Any]:
        """Values by the first dimension: plain ones for shapes (N,) and (N, 1), otherwise lists."""
        if len(self.shape) <= 1 or math.prod(self.shape[1:]) == 1:
            return list(self.values)
        width = math.prod(self.shape[1:])
        return [list(self.values[start : start + width]) for start in range(0, len(self.values), max(1, width))]


_DIGITS = 19
"""Maximum digits of a length."""
_DIMENSIONS = 8
"""Maximum dimensions of a tensor."""


def malformed(message: str) -> RequestError:
    """Return the problem of a request that does not follow the protocol."""
    return RequestError(400, message, "github.com/kserve/open-inference-protocol describes the requests")


def parse(content: bytes, header_length: str | None) -> tuple[dict[str, Any], list[Tensor]]:
    """Return the JSON of a request, and its input tensors.

    Raises:
        RequestError: The request is malformed.
    """
    length = len(content)
    if header_length is not None:
        if not header_length.isdecimal() or len(header_length) > _DIGITS or int(header_length) > length:
            raise malformed(f"{BINARY} is {header_length[:_DIGITS]}, the body has {length} bytes")
        length = int(header_length)
    check_number_of_values(content[:length])
    try:
        request = orjson.loads(content[:length])
    except orjson.JSONDecodeError as error:
        raise malformed(f"the request is no JSON: {error}") from None
    if not isinstance(request, dict) or not isinstance(request.get("inputs"), list):
        raise malformed("the request has no list of inputs")
    tensors, offset = [], length
    for given in request["inputs"]:
        tensor, offset = _tensor(given, content, offset)
        tensors.append(tensor)
    if offset != len(content):
        raise malformed(f"{len(content) - offset} bytes follow the last tensor")
    return request, tensors


def _tensor(given: Any, content: bytes, offset: int) -> tuple[Tensor, int]:
    """Return a tensor, and the end of its binary data."""
    match given:
        case {"name": str(name), "datatype": str(datatype), "shape": list(shape)}:
            pass
        case _:
            raise malformed("an input needs name, datatype and shape")
    if datatype not in DTYPES and datatype != "BYTES":
        raise malformed(f"{name}: unknown datatype {datatype}")
    sizes = [size for size in shape if isinstance(size, int) and not isinstance(size, bool) and 0 <= size < 2**31]
    if len(sizes) < len(shape) or len(shape) > _DIMENSIONS:
        raise malformed(f"{name}: invalid shape {shape[:_DIMENSIONS]}")
    parameters = given.get("parameters") or {}
    size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
    if size is None:
        values = _of_json(given.get("data"), name, datatype)
    else:
        if not isinstance(size, int) or size < 0 or offset + size > len(content):
            raise malformed(f"{name}: binary_data_size {size} does not fit the body")
        values = _of_bytes(content[offset : offset + size], name, datatype)
        offset += size
    if len(values) != math.prod(shape):
        raise malformed(f"{name}: {len(values)} values for the shape {shape}")
    return Tensor(name, datatype, tuple(shape), values), offset


def _of_json(data: Any, name: str, datatype: str) -> list[Any]:
    """Return JSON values, flat or nested, without nesting."""
    flat: list[Any] = []
    waiting: list[Any] = [data] if isinstance(data, list) else []
    if not waiting:
        raise malformed(f"{name}: data is no list")
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting.extend(reversed(part))
        else:
            flat.append(part)
    if datatype == "BYTES":
        if not all(isinstance(value, str | None) for value in flat):
            raise malformed(f"{name}: a value is no text")
    elif not all(isinstance(value, bool | int | float | None) for value in flat):
        raise malformed(f"{name}: a value is no number")
    return flat


def _of_bytes(data: bytes, name: str, datatype: str) -> list[Any]:
    if datatype != "BYTES":
        dtype = np.dtype(DTYPES[datatype])
        if len(data) % dtype.itemsize:
            raise malformed(f"{name}: {len(data)} bytes of {datatype}")
        return np.frombuffer(data, dtype.newbyteorder("<")).tolist()
    values, offset = [], 0
    while offset < len(data):
        end = offset + _LENGTH.size
        if end > len(data) or end + (length := _LENGTH.unpack_from(data, offset)[0]) > len(data):
            raise malformed(f"{name}: an element ends after the tensor")
        try:
            values.append(data[end : end + length].decode())
        except UnicodeDecodeError:
            raise malformed(f"{name}: an element is no UTF-8 text") from None
        offset = end + length
    return values


def binary(values: Sequence[Any] | npt.NDArray[Any], datatype: str) -> bytes:
    """Return the binary data of a tensor."""
    if datatype != "BYTES":
        return np.asarray(values, np.dtype(DTYPES[datatype]).newbyteorder("<")).tobytes()
    texts = [str(value).encode() for value in values]
    return b"".join(_LENGTH.pack(len(text)) + text for text in texts)


def answer(head: Mapping[str, Any], outputs: Sequence[Tensor], request: Mapping[str, Any]) -> tuple[bytes, int | None]:
    """Return the body of an answer with the requested outputs, and the length of its JSON if binary data follows.

    Raises:
        RequestError: An output is unknown.
    """
    wanted = _wanted(request, outputs)
    described, parts = [], []
    for tensor in outputs:
        if tensor.name not in wanted:
            continue
        values: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
        if wanted[tensor.name]:
            parts.append(binary(tensor.values, tensor.datatype))
            values["parameters"] = {"binary_data_size": len(parts[-1])}
        else:
            values["data"] = list(tensor.values)
        described.append(values)
    given = {"id": request["id"]} if isinstance(request.get("id"), str) else {}
    plain = orjson.dumps({**head, **given, "outputs": described}, option=orjson.OPT_SERIALIZE_NUMPY)
    return plain + b"".join(parts), len(plain) if parts else None


def _wanted(request: Mapping[str, Any], outputs: Sequence[Tensor]) -> dict[str, bool]:
    """Return the requested outputs, and whether each is binary."""
    parameters = request.get("parameters")
    as_binary = isinstance(parameters, dict) and parameters.get("binary_data_output") is True
    names = [tensor.name for tensor in outputs]
    if not request.get("outputs"):
        return dict.fromkeys(names, as_binary)
    wanted = {}
    for given in request["outputs"] if isinstance(request["outputs"], list) else [None]:
        if not isinstance(given, dict) or given.get("name") not in names:
            raise malformed(f"an output is unknown; the outputs are {', '.join(names)}")
        own = given.get("parameters")
        wanted[given["name"]] = bool(own.get("binary_data", as_binary)) if isinstance(own, dict) else as_binary
    return wanted


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


_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "example": {"inputs": [{"name": "userId", "datatype": "INT64", "shape": [1], "data": [42]}]},
                    "type": "object",
                    "required": ["inputs"],
                    "properties": {
                        "id": {"type": "string"},
                        "inputs": {
                            "type": "array",
                            "items": {
                                "type": "object",
                                "required": ["name", "datatype", "shape"],
                                "properties": {
                                    "name": {"type": "string"},
                                    "datatype": {"type": "string", "enum": [*DTYPES, "BYTES"]},
                                    "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}},
                                    "data": {"type": "array"},
                                },
                            },
                        },
                        "outputs": {"type": "array", "items": {"type": "object", "required": ["name"]}},
                    },
                }
            },
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


def inference_routes(service: Service) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/v2", tags=["Open Inference Protocol"], route_class=Route)

    @router.get("/health/live")
    async def live() -> Response:
        """Whether the server runs."""
        return json_response({"live": True})

    @router.get("/health/ready")
    async def ready() -> Response:
        """Whether the server takes traffic."""
        if reason := service.why_not_ready:
            raise RequestError(503, reason, "ask again in a second")
        return json_response({"ready": True})

    @router.get("")
    async def server() -> Response:
        """Return name, version and extensions of the server."""
        extensions = ["binary_tensor_data", "model_repository"]
        return json_response({"name": "recsys", "version": __version__, "extensions": extensions})

    @router.post("/repository/index")
    async def index() -> Response:
        """Return all models."""
        return json_response([
            {"name": one.name + suffix, "version": one.version, "state": "READY", "reason": ""}
            for one in service.fleet.all
            for suffix in ("", TOP_K)
        ])  # fmt: skip

    @router.get("/models/{name}")
    @router.get("/models/{name}/versions/{version}")
    async def model(name: str, version: str | None = None) -> Response:
        """Return inputs and outputs of a model."""
        deployment, top_k = find(service, name, version)
        return json_response(metadata(deployment, top_k=top_k))

    @router.get("/models/{name}/ready")
    @router.get("/models/{name}/versions/{version}/ready")
    async def model_ready(name: str, version: str | None = None) -> Response:
        """Whether a model takes requests."""
        find(service, name, version)
        return json_response({"name": name, "ready": True})

    @router.post("/models/{name}/infer", openapi_extra=_BODY)
    @router.post("/models/{name}/versions/{version}/infer", openapi_extra=_BODY)
    async def infer(name: str, request: Request, version: str | None = None) -> Response:
        """Score raw rows, or rank the catalog for users."""
        deployment, top_k = find(service, name, version)
        content = await content_of(request, service.settings.limits.body_bytes)
        header_length = request.headers.get(BINARY)
        asked, inputs = await apart(len(content), lambda: parse(content, header_length))
        outputs = await (infer_top_k if top_k else infer_scores)(service, deployment, inputs)
        head = {"model_name": name, "model_version": deployment.version}
        body, length = answer(head, outputs, asked)
        if length is None:
            return Response(body, media_type="application/json")
        return Response(body, headers={BINARY: str(length)}, media_type="application/octet-stream")

    return router
