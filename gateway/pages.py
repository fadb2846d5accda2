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

_MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_PAGE_HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": "default-src 'self'; img-src 'self' data:; connect-src 'self' ws: wss:",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


async def list_models(request: Request) -> Response:
    """GET /v1/models: aliases first, then pinned versions, then the tenant's adapters."""
    registry, tenant = _authenticated(request)
    data = [_model(registry, name) for name in _names(registry, tenant)]
    return JSONResponse({"object": "list", "data": data})


async def get_model(request: Request) -> Response:
    """GET /v1/models/{model}."""
    registry, tenant = _authenticated(request)
    name = request.path_params["model"]
    if name not in _names(registry, tenant):
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


def _authenticated(request: Request) -> tuple[Registry, str]:
    """The registry, and the tenant who asks."""
    edge: Edge = request.app.state.edge
    registry = edge.registry()
    return registry, authenticate(registry, bearer(request.headers)).tenant


def _names(registry: Registry, tenant: str) -> list[str]:
    """What the tenant may ask for."""
    return registry.model_names() + registry.adapter_names(tenant)


def _model(registry: Registry, name: str) -> dict[str, Any]:
    """One that there is. versions: what answers; parent, root: of an adapter, the version that it is for."""
    adapter = None if name in registry.models else registry.adapters.get(name)
    if adapter is not None:
        versions, created_us = [adapter.model_version], adapter.at_us
    else:
        route = None if name in registry.models else registry.routes.get(name)
        versions = [name] if route is None else [target.model_version for target in route.targets]
        registered = [registry.models[version] for version in versions if version in registry.models]
        created_us = max((model.at_us for model in registered), default=0)
    return {
        "id": name,
        "object": "model",
        "created": created_us // 1_000_000,
        "owned_by": "headrace",
        "root": name if adapter is None else adapter.model_version,
        "parent": None if adapter is None else adapter.model_version,
        "versions": versions,
    }
