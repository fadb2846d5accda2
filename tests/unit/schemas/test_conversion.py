"""Avro's int has 32 bits: no event with more is written or read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from schemas.codec import decode, encode
from schemas.errors import UnencodableEvent
from schemas.events import DeadLettered, ThroughputMeasured, ThroughputPoint, TokensGenerated

SMALLEST, LARGEST = -(1 << 31), (1 << 31) - 1
TOKENS = TokensGenerated(
    request_id="r", tenant="acme", attempt=1, at_us=1, index=0, token_ids=(1, 2), text_offset_chars=0, text="x"
)
LETTER = DeadLettered(
    at_us=1, consumer="c", reason="r", message="m", origin_topic="t", origin_partition=0, origin_offset=0, value=b""
)


@pytest.mark.parametrize("value", [SMALLEST, -1, 0, LARGEST])
def test_an_int_of_32_bits_comes_back(value: int) -> None:
    event = replace(TOKENS, attempt=value, index=value, token_ids=(value, value), text_offset_chars=value)
    assert decode(encode(event)) == event
    letter = replace(LETTER, origin_partition=value, schema_id=value)
    assert decode(encode(letter)) == letter


@pytest.mark.parametrize("value", [SMALLEST - 1, LARGEST + 1, 1 << 40, 1 << 70])
@pytest.mark.parametrize("field", ["attempt", "index", "text_offset_chars"])
def test_a_larger_one_is_not_written(field: str, value: int) -> None:
    with pytest.raises(UnencodableEvent, match=f"TokensGenerated does not fit its schema: {field} holds"):
        encode(replace(TOKENS, **{field: value}))  # type: ignore[arg-type]


@pytest.mark.parametrize("token_ids", [(LARGEST + 1,), (1, SMALLEST - 1, 1)])
def test_nor_is_one_in_an_array(token_ids: tuple[int, ...]) -> None:
    with pytest.raises(UnencodableEvent, match="token_ids holds what is no int of 32 bits"):
        encode(replace(TOKENS, token_ids=token_ids))


def test_nor_is_an_optional_one() -> None:
    assert decode(encode(LETTER)) == LETTER
    with pytest.raises(UnencodableEvent, match="schema_id holds what is no int of 32 bits"):
        encode(replace(LETTER, schema_id=LARGEST + 1))


def test_nor_is_one_in_a_record_of_an_array() -> None:
    def measured(context_tokens: int) -> ThroughputMeasured:
        point = ThroughputPoint(batch_size=1, context_tokens=context_tokens, output_tokens_per_second=1.0)
        return ThroughputMeasured(
            worker="w", at_us=1, deployment="d", model_version="m", engine="e", device="cpu", dtype="f", points=(point,)
        )

    assert decode(encode(measured(LARGEST))) == measured(LARGEST)
    with pytest.raises(UnencodableEvent, match="context_tokens holds what is no int of 32 bits"):
        encode(measured(LARGEST + 1))


@pytest.mark.parametrize("value", ["1", 1.5, None, b"1"])
def test_what_is_no_number_is_not_written_either(value: Any) -> None:
    with pytest.raises(UnencodableEvent, match="attempt holds what is no int of 32 bits"):
        encode(replace(TOKENS, attempt=value))
