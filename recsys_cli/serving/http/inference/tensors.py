"""Tensors of the Open Inference Protocol: JSON values, or binary data after the JSON."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from recsys_cli.serving.http.problems import RequestError
from recsys_cli.serving.http.reading import check_number_of_values

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
    """A tensor.

    Attributes:
        name: Its name.
        datatype: Its type, such as INT64; BYTES has text.
        shape: Its shape.
        values: Its values in row-major order.
    """

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
