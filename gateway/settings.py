"""What a gateway can be told."""

from __future__ import annotations

from dataclasses import dataclass, field

from eventlog.profile import BrokerProfile
from schemas.topics import Topics

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """One gateway.

    gateway_id: unique among the gateways of a cluster; it names the log's clients and picks the token partitions.
    max_body_bytes: largest HTTP body and WebSocket message.
    max_unsent_events, max_unsent_bytes: how far a WebSocket client may be behind what is live.
    slow_grace_seconds: how long it may be further behind without catching up (3008 after that).
    send_buffer_bytes: what the kernel may hold for one connection, so that a slow client shows early.
    max_responses_per_socket, max_open_responses: what may be unfinished at once.
    heartbeat_seconds: between SSE comments, so that proxies keep an idle stream open.
    stall_seconds: how long a connection may take nothing at all before it is dropped.
    accept_seconds: how long the log may take to acknowledge a request (503 past it).
    linger_seconds: how long a finished response, and a partition without open ones, stays at hand.
    telemetry_seconds: between two reports to the telemetry topic; 0 for none.
    stop_seconds: what open connections get to end in, at a stop.
    """

    profile: BrokerProfile
    topics: Topics = field(default_factory=Topics)
    host: str = "127.0.0.1"
    port: int = 8080
    gateway_id: str = "gateway-1"
    max_body_bytes: int = 4 * MIB
    max_unsent_events: int = 4096
    max_unsent_bytes: int = 1 * MIB
    slow_grace_seconds: float = 1.0
    send_buffer_bytes: int = 256 * KIB
    max_responses_per_socket: int = 256
    max_open_responses: int = 10_000
    max_kept_responses: int = 1_000
    heartbeat_seconds: float = 15.0
    stall_seconds: float = 30.0
    accept_seconds: float = 5.0
    linger_seconds: float = 60.0
    telemetry_seconds: float = 5.0
    stop_seconds: float = 1.0
