"""What a client can be told: one tree, stable codes, one JSON shape for every path (experience.md, section 3)."""

from __future__ import annotations

from typing import Any

from schemas.events import GenerationFailed, RequestRejected


class GatewayError(Exception):
    """Base of all. `status` is the HTTP status; `type` names the class and `code` the reason, both stable.

    message: what was wrong, with which value, and what to do.
    param: the field at fault.
    retry_after_ms: when trying again can succeed; None when it can't.
    """

    status = 500
    type = "server_error"
    code = "internal_error"

    def __init__(
        self, message: str, *, code: str | None = None, param: str | None = None, retry_after_ms: int | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.code
        self.param = param
        self.retry_after_ms = retry_after_ms

    def detail(self) -> dict[str, Any]:
        """The error without the id of the HTTP request that met it."""
        return {"type": self.type, "code": self.code, "message": self.message, "param": self.param}

    def body(self, request_id: str | None) -> dict[str, Any]:
        """The JSON body of every error answer."""
        return {"error": {**self.detail(), "request_id": request_id}}

    def headers(self) -> dict[str, str]:
        """retry-after in whole seconds, rounded up: a client that waits so long is not refused for the same reason."""
        if self.retry_after_ms is None:
            return {}
        return {"retry-after": str(max(1, -(-self.retry_after_ms // 1000)))}


class InvalidRequest(GatewayError):
    """The request is not well-formed."""

    status, type, code = 400, "invalid_request_error", "invalid_value"


class Unauthenticated(GatewayError):
    """No API key, or one that speaks for nobody."""

    status, type, code = 401, "authentication_error", "invalid_api_key"


class NotFound(GatewayError):
    """No such path, model, or response of this tenant."""

    status, type, code = 404, "not_found_error", "not_found"


class MethodNotAllowed(GatewayError):
    """The path exists, this method on it does not."""

    status, type, code = 405, "invalid_request_error", "method_not_allowed"


class RequestTooLarge(GatewayError):
    """The body is over the limit."""

    status, type, code = 413, "request_too_large", "request_too_large"


class UnsupportedParameter(GatewayError):
    """A parameter of OpenAI's API that is well-formed and that we can't serve."""

    status, type, code = 422, "invalid_request_error", "unsupported_parameter"


class Overloaded(GatewayError):
    """No room, or the log does not answer: trying again can succeed."""

    status, type, code = 503, "overloaded_error", "overloaded"


class TimedOut(GatewayError):
    """The deadline passed before the answer was whole."""

    status, type, code = 504, "timeout_error", "deadline_exceeded"


class HttpError(GatewayError):
    """An HTTP error that has no class of its own here."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message, code="http_error")
        self.status = status
        self.type = "invalid_request_error" if status < 500 else "server_error"


class ResponseFailed(GatewayError):
    """What the log says: the request was rejected, or its generation failed."""

    def __init__(self, event: RequestRejected | GenerationFailed, param: str | None = None) -> None:
        """param: what the client calls the field at fault."""
        rejected = isinstance(event, RequestRejected)
        super().__init__(
            event.message,
            code=event.code,
            param=param,
            retry_after_ms=event.retry_after_ms if isinstance(event, RequestRejected) else None,
        )
        self.status = event.status if 400 <= event.status <= 599 else (400 if rejected else 500)
        self.type = event.error_type
