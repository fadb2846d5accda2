"""Submit requests to Headrace and read the answers: over Kafka (Producer), or streamed over WebSocket (Stream)."""

from headrace_client.async_producer import AsyncProducer
from headrace_client.backoff import Backoff
from headrace_client.errors import (
    AnswerFailed,
    Backpressure,
    Closed,
    CreateUncertain,
    DeliveryFailed,
    GatewayRefused,
    GatewayUnreachable,
    HeadraceError,
    InvalidRequest,
    LogUnreachable,
    ProtocolError,
    RegistryFailed,
    RequestProblem,
    RequestRefused,
    ResponseTimeout,
    ResultTimeout,
    UnknownTenant,
)
from headrace_client.producer import Producer
from headrace_client.requests import ChatMessage, RequestFields
from headrace_client.results import Ending, Failed, Finished, NotDelivered, Rejected, Result, TextDelta
from headrace_client.settings import ProducerSettings
from headrace_client.submission import Submission

__all__ = [
    "AnswerFailed",
    "AsyncProducer",
    "Backoff",
    "Backpressure",
    "ChatMessage",
    "Closed",
    "CreateUncertain",
    "DeliveryFailed",
    "Ending",
    "Failed",
    "Finished",
    "GatewayRefused",
    "GatewayUnreachable",
    "HeadraceError",
    "InvalidRequest",
    "LogUnreachable",
    "NotDelivered",
    "Producer",
    "ProducerSettings",
    "ProtocolError",
    "RegistryFailed",
    "Rejected",
    "RequestFields",
    "RequestProblem",
    "RequestRefused",
    "ResponseTimeout",
    "Result",
    "ResultTimeout",
    "Submission",
    "TextDelta",
    "UnknownTenant",
]
