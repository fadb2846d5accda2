"""What /metrics tells."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.metrics import GatewayMetrics
from gateway.response_stream import ResponseStream
from schemas.events import TokenLogEvent
from tests.gateway_events import AT_US, MODEL, failed, finished, rejected, submitted


def told(event: TokenLogEvent) -> list[str]:
    metrics, stream = GatewayMetrics(), ResponseStream(submitted(received_at_us=AT_US - 300_000))
    stream.apply(event)
    metrics.finished(stream, AT_US + 1_700_000)
    return metrics.exposition().decode().splitlines()


def test_a_finished_response_counts_its_tokens_and_its_times() -> None:
    lines = told(finished(submitted(), 7, "length"))
    assert f'headrace:generation_tokens_total{{model_name="{MODEL}"}} 7.0' in lines
    assert f'headrace:prompt_tokens_total{{model_name="{MODEL}"}} 3.0' in lines
    assert f'headrace:time_to_first_token_seconds_sum{{model_name="{MODEL}"}} 0.3' in lines
    assert f'headrace:e2e_request_latency_seconds_sum{{model_name="{MODEL}"}} 2.0' in lines
    assert 'headrace:request_success_total{finished_reason="length"} 1.0' in lines


def test_tokens_are_those_that_quota_and_client_hear_of() -> None:
    """A prompt that a worker refused before it ran was no work."""
    refused = replace(failed(submitted()), status=422, output_tokens=0)
    assert f'headrace:prompt_tokens_total{{model_name="{MODEL}"}} 0.0' in told(refused)


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (rejected(submitted(), 429, "rate_limit_error", "tokens_per_minute"), "tokens_per_minute"),
        (failed(submitted()), "engine_failed"),
    ],
)
def test_what_ended_without_an_answer_counts_by_its_code(event: TokenLogEvent, reason: str) -> None:
    assert f'headrace:request_success_total{{finished_reason="{reason}"}} 1.0' in told(event)
