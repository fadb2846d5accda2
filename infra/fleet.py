"""Who runs: the newest report of every worker and gateway, and what it says of them now. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from schemas.events import Event, GatewayReported, WorkerReported

SILENT_INTERVALS = 3
SILENT_SECONDS = 15.0

State = Literal["warming up", "running", "draining", "stopped", "silent"]
_ALIVE: Mapping[str, State] = {"warming_up": "warming up", "draining": "draining"}

Report = WorkerReported | GatewayReported


@dataclass(frozen=True, slots=True)
class Member:
    """One worker or gateway.

    deployment, model_version: None for a gateway.
    state: `silent` if it has missed some reports: it is dead, stuck in a step, or cut off. A worker takes work while it
        is running only.
    tokens_per_second: output tokens, over its newest interval; None for a gateway, while there was no interval, and
        before a worker takes work.
    running: requests in the batch, or responses that a gateway follows. waiting: those without a slot.
    kv_share: of its memory for keys and values, in [0, 1]; None if it has none.
    seconds_ago: when it was last heard of.
    """

    name: str
    deployment: str | None
    model_version: str | None
    state: State
    tokens_per_second: float | None
    running: int
    waiting: int | None
    kv_share: float | None
    seconds_ago: float


def members(events: Iterable[Event], *, now_us: int) -> list[Member]:
    """Of these events of the telemetry topic, in the order of the log: workers by deployment, then gateways."""
    newest: dict[tuple[type[Report], str], Report] = {}
    for event in events:
        if isinstance(event, WorkerReported):
            newest[WorkerReported, event.worker] = event
        elif isinstance(event, GatewayReported):
            newest[GatewayReported, event.gateway] = event
    found = [_member(report, now_us) for report in newest.values()]
    return sorted(found, key=lambda m: (m.deployment is None, m.deployment or "", m.name))


def _member(report: Report, now_us: int) -> Member:
    seconds_ago = max(0.0, (now_us - report.at_us) / 1e6)
    state = _state(report, seconds_ago)
    if isinstance(report, GatewayReported):
        return Member(report.gateway, None, None, state, None, report.open_responses, None, None, seconds_ago)
    interval_ms, capacity, works = report.interval_ms, report.kv_capacity_tokens, report.state != "warming_up"
    return Member(
        name=report.worker,
        deployment=report.deployment,
        model_version=report.model_version,
        state=state,
        tokens_per_second=report.output_tokens * 1000 / interval_ms if works and interval_ms > 0 else None,
        running=report.running_requests,
        waiting=report.waiting_requests,
        kv_share=report.kv_used_tokens / capacity if capacity > 0 else None,
        seconds_ago=seconds_ago,
    )


def _state(report: Report, seconds_ago: float) -> State:
    """A first report has no interval to tell how often others follow; the usual one is 5 s."""
    if report.state == "stopping":
        return "stopped"
    patience = max(SILENT_SECONDS, SILENT_INTERVALS * report.interval_ms / 1000)
    return "silent" if seconds_ago > patience else _ALIVE.get(report.state, "running")
