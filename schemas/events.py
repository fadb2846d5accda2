"""The events: frozen dataclasses that mirror schemas/avro/*.avsc field by field (a test keeps the two in step).

An event is a fact in the past tense. What each field means stands in the .avsc file, which is the published
contract; times are microseconds since the Unix epoch, UTC. The classes have no slots on purpose: the codec hands
their __dict__ to the Avro writer as it is, without a copy.
"""

from __future__ import annotations

from .control_events import (
    AdapterRegistered,
    ApiKeyIssued,
    ApiKeyRevoked,
    ModelRegistered,
    Route,
    RouteTableChanged,
    RouteTarget,
    SchemaPublished,
    SchemaRegistered,
    TenantRegistered,
)
from .dead_letter_events import (
    DeadLettered,
    DeadLetterRequeued,
)
from .request_events import (
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    LogitBias,
    Message,
    QuotaSettled,
    RequestAdmitted,
    RequestCancelled,
    RequestRejected,
    RequestRouted,
    RequestSubmitted,
    RequestValidated,
    ResponseDelivered,
    TokenLogprob,
    TokenLogprobs,
    TokensGenerated,
)
from .telemetry_events import (
    GatewayReported,
    ThroughputMeasured,
    ThroughputPoint,
    WorkerReported,
)

# What a request's token log holds: these end it ...
TerminalEvent = RequestRejected | GenerationFinished | GenerationFailed
# ... and these are all of it, in the order in which they normally stand there.
TokenLogEvent = RequestAdmitted | GenerationStarted | TokensGenerated | TerminalEvent
RequestEvent = (
    RequestSubmitted
    | RequestCancelled
    | RequestValidated
    | RequestRouted
    | TokenLogEvent
    | QuotaSettled
    | ResponseDelivered
)
ControlEvent = (
    TenantRegistered
    | ApiKeyIssued
    | ApiKeyRevoked
    | ModelRegistered
    | AdapterRegistered
    | RouteTableChanged
    | SchemaPublished
    | SchemaRegistered
)
TelemetryEvent = WorkerReported | ThroughputMeasured | GatewayReported
DeadLetterEvent = DeadLettered | DeadLetterRequeued
Event = RequestEvent | ControlEvent | TelemetryEvent | DeadLetterEvent

# In the order in which a request meets them, then what surrounds it.
EVENT_TYPES: tuple[type[Event], ...] = (
    RequestSubmitted,
    RequestCancelled,
    RequestValidated,
    RequestRejected,
    RequestAdmitted,
    RequestRouted,
    GenerationStarted,
    TokensGenerated,
    GenerationFinished,
    GenerationFailed,
    QuotaSettled,
    ResponseDelivered,
    TenantRegistered,
    ApiKeyIssued,
    ApiKeyRevoked,
    ModelRegistered,
    AdapterRegistered,
    RouteTableChanged,
    SchemaPublished,
    SchemaRegistered,
    WorkerReported,
    ThroughputMeasured,
    GatewayReported,
    DeadLettered,
    DeadLetterRequeued,
)

__all__ = [
    "EVENT_TYPES",
    "AdapterRegistered",
    "ApiKeyIssued",
    "ApiKeyRevoked",
    "ControlEvent",
    "DeadLetterEvent",
    "DeadLetterRequeued",
    "DeadLettered",
    "Event",
    "GatewayReported",
    "GenerationFailed",
    "GenerationFinished",
    "GenerationStarted",
    "LogitBias",
    "Message",
    "ModelRegistered",
    "QuotaSettled",
    "RequestAdmitted",
    "RequestCancelled",
    "RequestEvent",
    "RequestRejected",
    "RequestRouted",
    "RequestSubmitted",
    "RequestValidated",
    "ResponseDelivered",
    "Route",
    "RouteTableChanged",
    "RouteTarget",
    "SchemaPublished",
    "SchemaRegistered",
    "TelemetryEvent",
    "TenantRegistered",
    "TerminalEvent",
    "ThroughputMeasured",
    "ThroughputPoint",
    "TokenLogEvent",
    "TokenLogprob",
    "TokenLogprobs",
    "TokensGenerated",
    "WorkerReported",
]
