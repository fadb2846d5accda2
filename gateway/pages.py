"""What is not about responses: models, health, metrics, the playground."""

from __future__ import annotations

from importlib import resources
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from eventlog.registry import Registry
from gateway.auth import authenticate, bearer
from gateway.edge import Edge
from gateway.errors import NotFound
from schemas.events import ModelRegistered

_MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_PAGE_HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": "default-src 'self'; img-src 'self' data:; connect-src 'self' ws: wss:",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


async def list_models(request: Request) -> Response:
    """GET /v1/models: aliases first, then pinned versions."""
    registry = _authenticated(request)
    data = [_model(registry, name) for name in registry.model_names()]
    return JSONResponse({"object": "list", "data": data})


async def get_model(request: Request) -> Response:
    """GET /v1/models/{model}."""
    registry = _authenticated(request)
    name = request.path_params["model"]
    if name not in registry.routes and name not in registry.models:
        raise NotFound(f"no model {name[:64]!r}; GET /v1/models lists them", code="model_not_found", param="model")
    return JSONResponse(_model(registry, name))


async def healthz(_: Request) -> Response:
    """The process is alive."""
    return PlainTextResponse("ok\n")


async def readyz(request: Request) -> Response:
    """The gateway can take requests: the log answers and its readers run."""
    edge: Edge = request.app.state.edge
    ready = edge.is_ready() and not edge.stopping.is_set()
    return PlainTextResponse("ready\n" if ready else "the log does not answer\n", 200 if ready else 503)


async def metrics(request: Request) -> Response:
    """Prometheus."""
    edge: Edge = request.app.state.edge
    return Response(edge.metrics.exposition(), media_type="text/plain; version=0.0.4; charset=utf-8")


def page_routes() -> list[Route]:
    """The playground: `/` and the files that it names, held in memory."""
    folder = resources.files("gateway").joinpath("static")
    routes = []
    for file in folder.iterdir():
        path = "/" if file.name == "index.html" else f"/static/{file.name}"
        media_type = _MEDIA_TYPES[file.name.rpartition(".")[2]]
        routes.append(Route(path, _Page(file.read_bytes(), media_type), methods=["GET"]))
    return routes


class _Page:
    """An endpoint that is a file."""

    def __init__(self, content: bytes, media_type: str) -> None:
        self._content = content
        self._media_type = media_type

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await Response(self._content, media_type=self._media_type, headers=_PAGE_HEADERS)(scope, receive, send)


def _authenticated(request: Request) -> Registry:
    edge: Edge = request.app.state.edge
    registry = edge.registry()
    authenticate(registry, bearer(request.headers))
    return registry


def _model(registry: Registry, name: str) -> dict[str, Any]:
    versions = [target.model_version for target in registry.routes[name].targets] if name in registry.routes else [name]
    registered: list[ModelRegistered] = [registry.models[version] for version in versions if version in registry.models]
    created = max((model.at_us for model in registered), default=0) // 1_000_000
    return {"id": name, "object": "model", "created": created, "owned_by": "headrace", "versions": versions}
