"""One request as `headrace explain` shows it. Pure: rows of ClickHouse in, a Trace out.

The stages come from the view headrace.requests, the one place that defines them; the decisions are the events
themselves, each with its reason in words.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

STAGES = ("ingress", "validate", "quota", "route", "queue", "schedule", "prefill", "decode", "deliver")

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Stage:
    """start_ms: since the request was received. It ends where the next one starts."""

    name: str
    start_ms: float
    ms: float


@dataclass(frozen=True, slots=True)
class Decision:
    """at_ms: since the request was received."""

    at_ms: float
    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Trace:
    """total_ms: None while the request runs. tokens_per_second: of the decode stage, None below two tokens.

    received_at: as ClickHouse writes it, UTC.
    """

    request_id: str
    tenant: str
    model: str
    model_version: str
    deployment: str
    worker: str
    status: str
    reason: str
    prompt_tokens: int
    output_tokens: int
    attempts: int
    endpoint: str
    received_at: str
    ended_us: int | None
    is_delivered: bool
    stages: tuple[Stage, ...]
    total_ms: float | None
    ttft_ms: float | None
    tokens_per_second: float | None
    decisions: tuple[Decision, ...]

    @property
    def stages_ms(self) -> float:
        """All stages together."""
        return sum(stage.ms for stage in self.stages)


def trace_of(request: Fields, events: Iterable[Fields]) -> Trace:
    """`request`: a row of headrace.requests, with received_us and ended_us.

    `events`: all of the request's, with event_type, topic, at_us and payload.
    """
    return Trace(
        request_id=request["request_id"],
        tenant=request["tenant"],
        model=request["model"],
        model_version=request["model_version"],
        deployment=request["deployment"],
        worker=request["worker"],
        status=request["status"],
        reason=request["error_code"] or request["finish_reason"],
        prompt_tokens=request["prompt_tokens"],
        output_tokens=request["output_tokens"],
        attempts=request["attempts"],
        endpoint=request["endpoint"],
        received_at=request["received_at"] or "",
        ended_us=request["ended_us"],
        is_delivered=request["delivered_at"] is not None,
        stages=_stages(request),
        total_ms=request["total_ms"],
        ttft_ms=request["ttft_ms"],
        tokens_per_second=_rate(request["output_tokens"], request["decode_ms"]),
        decisions=_decisions(request, events),
    )


def _stages(request: Fields) -> tuple[Stage, ...]:
    stages: list[Stage] = []
    start_ms = 0.0
    for name in STAGES:
        ms = request[f"{name}_ms"]
        if ms is not None:
            stages.append(Stage(name, start_ms, ms))
            start_ms += ms
    return tuple(stages)


def _rate(tokens: int, decode_ms: float | None) -> float | None:
    """The first token is prefill's: decode makes the others."""
    return (tokens - 1) * 1000 / decode_ms if decode_ms and tokens > 1 else None


def _decisions(request: Fields, events: Iterable[Fields]) -> tuple[Decision, ...]:
    found: list[Decision] = []
    told: set[tuple[str, object]] = set()
    # What is decided in one step has one time, and may lie in two topics: it is told as one follows from the other.
    order = {kind: number for number, kind in enumerate(_WORDS)}
    for event in sorted(events, key=lambda event: (event["at_us"], order.get(event["event_type"], 0))):
        kind, fields = event["event_type"], json.loads(event["payload"])
        if kind not in _WORDS or (kind in _ENDINGS and not _counts(event, request)):
            continue
        # A processor may repeat a decision; a worker's attempts and a client's deliveries are each their own.
        once = (kind, (fields.get("attempt"), fields["at_us"] if kind == "ResponseDelivered" else None))
        if once in told:
            continue
        told.add(once)
        what, why = _WORDS[kind](fields)
        found.append(Decision((event["at_us"] - (request["received_us"] or event["at_us"])) / 1000, what, why))
    return tuple(found)


_ENDINGS = frozenset({"RequestRejected", "GenerationFinished", "GenerationFailed"})


def _counts(event: Fields, request: Fields) -> bool:
    """The ending that the view took, not its copy and not that of a worker that was given up."""
    return str(event["topic"]).startswith("tokens.") and event["at_us"] == request["ended_us"]


def _submitted(event: Fields) -> tuple[str, str]:
    deadline_us = event.get("deadline_at_us")
    deadline = f", wanted within {_ms((deadline_us - event['received_at_us']) / 1000)}" if deadline_us else ""
    return (
        "submitted",
        f"to {event['endpoint']} for {event['model']}, {count(len(event['messages']), 'message')}{deadline}",
    )


def _validated(event: Fields) -> tuple[str, str]:
    prompt = count(len(event["prompt_token_ids"]), "prompt token")
    return (
        "validated",
        f"{prompt} for {event['tokenized_for']}, at most {event['max_output_tokens']:,} to make, {_sampling(event)}",
    )


# Of each parameter the value that changes nothing, which is not told.
_NEUTRAL: Mapping[str, float] = {
    "top_p": 1, "top_k": 0, "min_p": 0, "repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0
}  # fmt: skip


def _sampling(event: Fields) -> str:
    """How tokens are drawn and what the answer is held to, as far as it is not what always holds."""
    greedy = not event["temperature"]
    told = ["greedy"] if greedy else [f"temperature {event['temperature']:g}, seed {event['seed']}"]
    told += [f"{name} {event[name]:g}" for name, neutral in _NEUTRAL.items() if event.get(name, neutral) != neutral]
    if biases := event.get("logit_bias"):
        told.append(f"bias on {count(len(biases), 'token')}")
    if (top := event.get("top_logprobs")) is not None:
        told.append(f"log probabilities with the {top} likeliest" if top else "log probabilities")
    if (schema := event.get("json_schema")) is not None:
        told.append(f"JSON by a schema of {len(schema.encode()):,} bytes")
    return ", ".join(told)


def _admitted(event: Fields) -> tuple[str, str]:
    return "admitted", (
        f"{event['reserved_tokens']:,} tokens reserved; left this minute: {event['remaining_tokens']:,} of "
        f"{event['limit_tokens']:,} tokens, {event['remaining_requests']:,} of {event['limit_requests']:,} requests"
    )


def _rejected(event: Fields) -> tuple[str, str]:
    retry = f"; try again in {_ms(event['retry_after_ms'])}" if event.get("retry_after_ms") else ""
    message = event["message"].rstrip(".")
    return f"refused by {event['stage']}", f"{event['status']} {event['code']}: {message}{retry}"


def _routed(event: Fields) -> tuple[str, str]:
    priority = f", priority {event['priority']}" if event["priority"] else ""
    adapter = f" with adapter {event['adapter']}" if event.get("adapter") else ""
    return "routed", f"to {event['model_version']}{adapter} on {event['deployment']}: {event['reason']}{priority}"


def _started(event: Fields) -> tuple[str, str]:
    taken = event.get("resumed_output_tokens")
    resumed = f", takes over {count(taken, 'output token')}" if taken else ""
    attempt = f"attempt {event['attempt']} on " if event["attempt"] > 1 else "on "
    return "started", f"{attempt}{event['worker']}{resumed}"


def _finished(event: Fields) -> tuple[str, str]:
    return "finished", f"{event['finish_reason']} after {count(event['output_tokens'], 'output token')}"


def _failed(event: Fields) -> tuple[str, str]:
    return "failed", f"{event['status']} {event['code']}: {event['message']}"


def _cancelled(event: Fields) -> tuple[str, str]:
    return "cancel asked", str(event["reason"])


def _settled(event: Fields) -> tuple[str, str]:
    used = event["prompt_tokens"] + event["output_tokens"]
    return (
        "settled",
        f"{used:,} of {event['reserved_tokens']:,} reserved tokens used, {event['released_tokens']:,} given back",
    )


def _delivered(event: Fields) -> tuple[str, str]:
    resumed = f", resumed after {event['resumed_after']}" if event.get("resumed_after", -1) >= 0 else ""
    events = count(event["events"], "event")
    return "delivered", f"{events} over {event['transport']} by {event['gateway']}{resumed}"


_WORDS: Mapping[str, Callable[[Fields], tuple[str, str]]] = {
    "RequestSubmitted": _submitted,
    "RequestValidated": _validated,
    "RequestAdmitted": _admitted,
    "RequestRejected": _rejected,
    "RequestRouted": _routed,
    "RequestCancelled": _cancelled,
    "GenerationStarted": _started,
    "GenerationFinished": _finished,
    "GenerationFailed": _failed,
    "QuotaSettled": _settled,
    "ResponseDelivered": _delivered,
}


def count(number: int, name: str) -> str:
    """`1 token`, `2 tokens`."""
    return f"{number:,} {name}{'' if number == 1 else 's'}"


def _ms(milliseconds: float) -> str:
    return f"{milliseconds / 1000:,.1f} s" if milliseconds >= 1000 else f"{milliseconds:,.0f} ms"
