"""What can go wrong, as one tree. Messages say what was wrong, with which value, and what to do; codes are stable."""

from __future__ import annotations


class HeadraceError(Exception):
    """Base of all."""

    code = "headrace"


class InvalidRequest(HeadraceError, ValueError):
    """The arguments make no request. Nothing was sent."""

    code = "invalid_request"


class Backpressure(HeadraceError):
    """A bounded buffer is full, and had no room for as long as the caller would wait. Nothing was sent."""

    code = "backpressure"


class Closed(HeadraceError):
    """The producer or stream was closed."""

    code = "closed"


class ResultTimeout(HeadraceError, TimeoutError):
    """Nothing came within the time that the caller allowed. The request goes on: ask again, or cancel it."""

    code = "result_timeout"


# --- Kafka -----------------------------------------------------------------------------------------------------------


class UnknownTenant(HeadraceError):
    """The tenant has no topics."""

    code = "unknown_tenant"


class LogUnreachable(HeadraceError):
    """No broker answered, or reading from it came to an end."""

    code = "log_unreachable"


class RegistryFailed(HeadraceError):
    """The schema registry gave no id for an event that is to be written."""

    code = "registry_failed"


class DeliveryFailed(HeadraceError):
    """The broker has not acknowledged the record in time: it may or may not be in the log."""

    code = "delivery_failed"


# --- What the server says of a request -------------------------------------------------------------------------------


class RequestProblem(HeadraceError):
    """Base of the server's verdicts. `status`, `type`, `code` and `param` are those of the HTTP API.

    retry_after_ms: when trying again can succeed; None when the server does not say.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        type: str,
        code: str,
        param: str | None = None,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.message = message
        self.status = status
        self.type = type
        self.code = code
        self.param = param
        self.retry_after_ms = retry_after_ms


class RequestRefused(RequestProblem):
    """The request was not taken: by its shape, by the tenant's quota, or for want of room. No token was made."""


class AnswerFailed(RequestProblem):
    """The request was taken, and its answer will never be whole."""


# --- WebSocket -------------------------------------------------------------------------------------------------------


class GatewayRefused(HeadraceError):
    """The gateway answered the connection with an HTTP error in place of the upgrade. 401: the API key is unknown."""

    code = "gateway_refused"

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class GatewayUnreachable(HeadraceError):
    """No gateway took a connection, in as many attempts as the policy allows."""

    code = "gateway_unreachable"


class CreateUncertain(HeadraceError):
    """The connection was lost between `response.create` and its acknowledgement: the request may or may not run."""

    code = "create_uncertain"


class ResponseTimeout(HeadraceError, TimeoutError):
    """The response was not whole within its `timeout`. It has been cancelled."""

    code = "response_timeout"


class ProtocolError(HeadraceError):
    """The server sent what the protocol does not allow, again and again: garbage, or numbers with gaps."""

    code = "protocol_error"
