from __future__ import annotations

import pytest

from gpu_consumers.engines.echo import EchoEngine
from gpu_consumers.plan import Admission, Decode, PrefillChunk, SamplingParams, StepPlan
from tests.batching import Request, run_batch


class Clock:
    """Virtual seconds; waiting moves them on."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


def say(text: str) -> tuple[int, ...]:
    return tuple(text.encode())


def test_the_prompt_comes_back_in_order_and_again_when_it_is_exhausted() -> None:
    [request] = run_batch(EchoEngine(), [Request(say("abc"), 7)])
    assert bytes(request.output) == b"abcabca"


def test_each_sequence_of_a_batch_hears_its_own_echo_whatever_the_chunks() -> None:
    texts = ["x", "hello", "a longer prompt than the others"]
    for chunk in (1, 2, None):
        requests = run_batch(EchoEngine(slots=2), [Request(say(t), 40) for t in texts], chunk_tokens=chunk)
        assert [bytes(r.output).decode() for r in requests] == [(t * 40)[:40] for t in texts]


@pytest.mark.parametrize("emitted", [1, 3, 5, 8])
def test_a_resumed_sequence_goes_on_exactly_where_it_left_off(emitted: int) -> None:
    whole = say("abcab") + say("abcab") + say("abc")
    [resumed] = run_batch(EchoEngine(), [Request(say("abcab"), 13 - emitted, emitted=whole[:emitted])], chunk_tokens=2)
    assert tuple(resumed.output) == whole[emitted:]


def test_a_sequence_with_a_json_schema_fails_alone() -> None:
    guided = Request(say("ab"), 2, SamplingParams(json_schema='{"type": "object"}'))
    run_batch(EchoEngine(), [guided, whole := Request(say("hi"), 2)])
    assert guided.failure == "the echo engine says the prompt back: it can hold no answer to a JSON schema"
    assert bytes(whole.output) == b"hi"


def test_a_resume_that_has_no_prompt_fails_alone() -> None:
    lost, whole = run_batch(EchoEngine(), [Request((), 2, emitted=say("ab")), Request(say("hi"), 2)])
    assert lost.failure is not None
    assert "no prompt is left" in lost.failure
    assert bytes(whole.output) == b"hi"


def test_steps_that_decode_start_one_period_apart() -> None:
    clock = Clock()
    run_batch(EchoEngine(tokens_per_second=4, clock=clock, wait=clock.wait), [Request(say("ab"), 5)])
    assert clock.now == pytest.approx(101.0)
    assert clock.waits == pytest.approx([0.25] * 4)


def test_a_slow_caller_is_not_made_to_wait_on_top() -> None:
    clock = Clock()
    engine = EchoEngine(tokens_per_second=4, clock=clock, wait=clock.wait)
    engine.execute(StepPlan(admitted=(Admission(0, SamplingParams(), 9),), prefills=(PrefillChunk(0, (65,), 0, True),)))
    clock.now += 1.0
    engine.execute(StepPlan(decodes=(Decode(0, 65, 1),)))
    assert clock.waits == []


def test_without_a_rate_nothing_waits() -> None:
    clock = Clock()
    run_batch(EchoEngine(clock=clock, wait=clock.wait), [Request(say("ab"), 50)])
    assert clock.waits == []


def test_a_token_outside_the_byte_vocabulary_fails_alone() -> None:
    bad, good = run_batch(EchoEngine(), [Request((65, 257), 2), Request(say("ok"), 2)])
    assert bad.failure == "token id 257 is outside the vocabulary of 257"
    assert bytes(good.output) == b"ok"


def test_it_has_no_end_of_answer_unless_it_is_given_one() -> None:
    assert EchoEngine().info.eos_token_ids == frozenset()
    assert EchoEngine(eos_token_ids=frozenset({256})).info.eos_token_ids == {256}
