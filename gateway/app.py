"""The ASGI application: routes, and one shape for every error."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute

from gateway import answers, pages
from gateway.edge import Edge
from gateway.errors import GatewayError, HttpError, MethodNotAllowed, NotFound
from gateway.http_identity import HttpIdentity
from gateway.websocket import websocket_responses


def create_app(edge: Edge) -> Starlette:
    """The application over these parts; it starts and stops none of them."""
    routes = [
        WebSocketRoute("/v1/responses", websocket_responses),
        Route("/v1/responses", answers.create_response, methods=["POST"]),
        Route("/v1/responses/{response_id}", answers.get_response, methods=["GET"]),
        Route("/v1/responses/{response_id}/cancel", answers.cancel_response, methods=["POST"]),
        Route("/v1/chat/completions", answers.create_chat_completion, methods=["POST"]),
        Route("/v1/completions", answers.create_completion, methods=["POST"]),
        Route("/v1/models", pages.list_models, methods=["GET"]),
        Route("/v1/models/{model}", pages.get_model, methods=["GET"]),
        Route("/healthz", pages.healthz, methods=["GET"]),
        Route("/readyz", pages.readyz, methods=["GET"]),
        Route("/metrics", pages.metrics, methods=["GET"]),
        *pages.page_routes(),
    ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(HttpIdentity, metrics=edge.metrics)],
        exception_handlers={
            GatewayError: _gateway_error,
            HTTPException: _http_error,
            ClientDisconnect: _client_left,
            Exception: _fault,
        },
    )
    app.router.redirect_slashes = False
    app.state.edge = edge
    return app


def error_response(request: Request, error: GatewayError) -> Response:
    """The answer that tells an error; its request id is the one in x-request-id."""
    request_id: str = request.scope["headrace.request_id"]
    return JSONResponse(error.body(request_id), error.status, headers=error.headers())


async def _gateway_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, GatewayError)
    return error_response(request, error)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    where = f"{request.method} {request.url.path[:200]}"
    known: GatewayError = HttpError(error.status_code, error.detail)
    if error.status_code == 404:
        known = NotFound(f"no such path: {where}", code="path_not_found")
    elif error.status_code == 405:
        known = MethodNotAllowed(f"{where}: this path takes {(error.headers or {}).get('Allow', 'another method')}")
    response = error_response(request, known)
    response.headers.update(error.headers or {})
    return response


async def _client_left(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it; the metrics do


async def _fault(request: Request, error: Exception) -> Response:
    """Anything unforeseen. Starlette raises it again behind this answer, so that it is logged."""
    return error_response(request, GatewayError("something went wrong here; the request id helps to find it"))
