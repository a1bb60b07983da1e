"""Routes of the Open Inference Protocol."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from recsys_cli import __version__
from recsys_cli.serving.http.answers import json_response
from recsys_cli.serving.http.inference import tensors
from recsys_cli.serving.http.inference.models import TOP_K, find, infer_scores, infer_top_k, metadata
from recsys_cli.serving.http.problems import RequestError
from recsys_cli.serving.http.reading import Route, apart, content_of
from recsys_cli.serving.http.service import Service

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
                                    "datatype": {"type": "string", "enum": [*tensors.DTYPES, "BYTES"]},
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
        header_length = request.headers.get(tensors.BINARY)
        asked, inputs = await apart(len(content), lambda: tensors.parse(content, header_length))
        outputs = await (infer_top_k if top_k else infer_scores)(service, deployment, inputs)
        head = {"model_name": name, "model_version": deployment.version}
        body, length = tensors.answer(head, outputs, asked)
        if length is None:
            return Response(body, media_type="application/json")
        return Response(body, headers={tensors.BINARY: str(length)}, media_type="application/octet-stream")

    return router
