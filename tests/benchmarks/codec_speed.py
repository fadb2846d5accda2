"""Events a second through the codec, against bare fastavro on the same parsed schema.

The bare writer and reader do what anyone would write: a record as a dictionary to a body, and back. They have no
header, no event class, no tuples, no checks and no typed errors. Both take turns in short rounds, and each reaches the
speed of its best round: another process on the machine can only make a round slower.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from io import BytesIO
from typing import Any, Final

import fastavro

from schemas.codec import SCHEMAS, decode, encode
from schemas.events import Event, Message, RequestSubmitted, TokensGenerated
from tests.benchmarks.row import BenchRow

ROUNDS: Final = 60
CALLS: Final = 1_000
BAR: Final = 0.77  # 1.3 times the time
REQUEST_ID: Final = "0192f3a0-1111-7222-8333-444444440005"

TOKENS = TokensGenerated(
    request_id=REQUEST_ID, tenant="acme", attempt=1, at_us=1_764_489_600_000_000, index=96,
    token_ids=(3145, 278, 11, 902), text_offset_chars=402, text=" once upon a time",
)  # fmt: skip
SUBMITTED = RequestSubmitted(
    request_id=REQUEST_ID, tenant="acme", at_us=1_764_489_600_000_000, received_at_us=1_764_489_600_000_000,
    source="gateway", endpoint="responses", model="chat", max_output_tokens=256, temperature=0.7,
    messages=(Message(role="system", content="Answer in one word."), Message(role="user", content="All work. " * 102)),
)  # fmt: skip


def run() -> list[BenchRow]:
    """Encode and decode of the event that there is most of, and of the largest that there are many of."""
    return [row for event in (TOKENS, SUBMITTED) for row in _rows(event)]


def _rows(event: Event) -> list[BenchRow]:
    schema = SCHEMAS[type(event)]
    parsed, data = schema.parsed, encode(event)
    body = data[len(schema.header) :]
    record = _as_lists(asdict(event))

    def bare_encode() -> bytes:
        out = BytesIO()
        fastavro.schemaless_writer(out, parsed, record)
        return out.getvalue()

    def bare_decode() -> Any:
        return fastavro.schemaless_reader(BytesIO(body), parsed, None)

    assert bare_encode() == body
    assert bare_decode() == record
    assert decode(data) == event
    pairs = {"encode": (lambda: encode(event), bare_encode), "decode": (lambda: decode(data), bare_decode)}
    return [
        BenchRow(f"codec_{verb}_{type(event).__name__}", *_rates(ours, bare), "events/s", BAR)
        for verb, (ours, bare) in pairs.items()
    ]


def _rates(ours: Callable[[], object], bare: Callable[[], object]) -> tuple[float, float]:
    """Calls a second of each."""
    best = {ours: float("inf"), bare: float("inf")}
    for round_ in range(ROUNDS):
        for call in (ours, bare) if round_ % 2 else (bare, ours):
            best[call] = min(best[call], _seconds(call))
    return CALLS / best[ours], CALLS / best[bare]


def _seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    for _ in range(CALLS):
        call()
    return time.perf_counter() - begin


def _as_lists(value: Any) -> Any:
    """With lists for tuples, as fastavro reads them."""
    if isinstance(value, dict):
        return {key: _as_lists(item) for key, item in value.items()}
    return [_as_lists(item) for item in value] if isinstance(value, tuple) else value
