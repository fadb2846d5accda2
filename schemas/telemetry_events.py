"""Events in which workers and gateways tell how they are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ThroughputPoint:
    """One point of a worker's throughput curve."""

    batch_size: int
    context_tokens: int
    output_tokens_per_second: float


@dataclass(frozen=True, kw_only=True)
class ThroughputMeasured:
    """A worker measured its engine before it took the first request."""

    worker: str
    at_us: int
    deployment: str
    model_version: str
    engine: str
    device: str
    dtype: str
    points: tuple[ThroughputPoint, ...]


@dataclass(frozen=True, kw_only=True)
class WorkerReported:
    """A worker is alive, and this is what it did since its last report."""

    worker: str
    at_us: int
    deployment: str
    model_version: str
    state: str
    interval_ms: int
    steps: int
    step_mean_us: int
    step_max_us: int
    prompt_tokens: int
    output_tokens: int
    finished_requests: int
    running_requests: int
    waiting_requests: int
    kv_used_tokens: int
    kv_capacity_tokens: int


@dataclass(frozen=True, kw_only=True)
class GatewayReported:
    """A gateway is alive, and this is what it did since its last report."""

    gateway: str
    at_us: int
    state: str
    interval_ms: int
    open_sockets: int
    open_responses: int
    accepted_requests: int
    sent_events: int
    slow_clients: int
