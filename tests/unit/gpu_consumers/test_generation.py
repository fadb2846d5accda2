from dataclasses import replace

import pytest

from gpu_consumers.generation import MAX_LOGPROBS, Failure, Generation, Model
from gpu_consumers.plan import Logprobs, SamplingParams
from gpu_consumers.prior_attempts import PriorAttempts
from gpu_consumers.sequence import Sequence
from models.tokenizer import ByteTokenizer
from schemas.events import (
    AdapterRegistered,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    RequestRouted,
    TokenLogEvent,
    TokenLogprob,
    TokenLogprobs,
    TokensGenerated,
)
from schemas.token_log import TokenLog

MODEL = Model(ByteTokenizer(), frozenset({ByteTokenizer.EOS}))
ORDER = RequestRouted(
    request_id="r",
    tenant="t",
    at_us=10,
    admitted_at_us=9,
    model="chat",
    model_version="chat@v1",
    deployment="chat-v1",
    reason="pinned",
    prompt_token_ids=(1, 2, 3),
    max_output_tokens=6,
    temperature=0.5,
    top_p=0.9,
    top_k=4,
    seed=11,
    stop=("END",),
    deadline_at_us=99,
    priority=2,
)


def generation(prior: PriorAttempts | None = None, order: RequestRouted = ORDER) -> Generation:
    return Generation(order, MODEL, worker="w2", pulled_at_us=20, prior=prior)


def add(made: Generation, text: str, now_us: int = 30) -> None:
    for token in text.encode():
        made.add_token(token, now_us)


def prior_of(text: str, *, written: str | None = None) -> PriorAttempts:
    """A first attempt that put these tokens into the log; text that was held back is not in it."""
    prior = PriorAttempts()
    prior.apply(
        GenerationStarted(
            request_id="r", tenant="t", attempt=1, at_us=12, pulled_at_us=11, worker="w1", deployment="chat-v1",
            model_version="chat@v1", prompt_tokens=3,
        )
    )  # fmt: skip
    prior.apply(
        TokensGenerated(
            request_id="r", tenant="t", attempt=1, at_us=13, index=0, token_ids=tuple(text.encode()),
            text_offset_chars=0, text=text if written is None else written,
        )
    )  # fmt: skip
    return prior


def test_the_scheduler_is_told_all_that_matters_to_it() -> None:
    assert generation().sequence == Sequence(
        "r", "t", (1, 2, 3), 9, sampling=SamplingParams(0.5, 0.9, 4, 11), deadline_at_us=99, priority=2
    )


def test_an_adapter_goes_with_its_registration_as_of_when_the_request_was_routed() -> None:
    told = replace(ORDER, adapter="tone@v1", adapter_registered_at_us=7, adapter_location="/tone")
    registration = AdapterRegistered(adapter="tone@v1", at_us=7, model_version="chat@v1", location="/tone")
    assert generation(order=told).sequence.adapter_registration == registration
    older_release = generation(order=replace(ORDER, adapter="tone@v1")).sequence
    assert (older_release.adapter, older_release.adapter_registration) == ("tone@v1", None)


def test_a_first_attempt_starts_from_nothing() -> None:
    event = generation().started(25)
    assert (event.attempt, event.resumed_output_tokens, event.prompt_tokens) == (1, 0, 3)
    assert (event.at_us, event.pulled_at_us, event.worker) == (25, 20, "w2")


def test_tokens_of_several_steps_go_into_one_event_until_they_are_written() -> None:
    made = generation()
    add(made, "a", now_us=30)
    add(made, "bE", now_us=31)
    event = made.unwritten()
    assert event is not None
    assert (event.index, event.token_ids, event.text_offset_chars, event.text) == (0, (97, 98, 69), 0, "ab")
    assert event.at_us == 31
    made.written()
    assert made.unwritten() is None
    add(made, "x", now_us=32)
    event = made.unwritten()
    assert event is not None
    assert (event.index, event.token_ids, event.text_offset_chars, event.text) == (3, (120,), 2, "Ex")
    assert made.first_token_at_us == 30


def test_a_next_attempt_goes_on_behind_what_the_log_holds() -> None:
    made = generation(prior_of("abE", written="ab"))
    assert made.sequence.prefix_token_ids == (1, 2, 3, 97, 98, 69)
    assert (made.sequence.resumed_tokens, made.sequence.max_tokens) == (3, 9)
    assert (made.started(25).attempt, made.started(25).resumed_output_tokens) == (2, 3)
    assert made.unwritten() is None
    add(made, "N")
    add(made, "x")
    event = made.unwritten()
    assert event is not None
    assert (event.attempt, event.index, event.text_offset_chars, event.text) == (2, 3, 2, "ENx")
    assert made.finished("cancelled", 40).first_token_at_us == 13
    assert made.output_tokens == 5


def test_text_that_the_log_lacks_is_made_up_for() -> None:
    event = generation(prior_of("abc", written="a")).unwritten()
    assert event is not None
    assert (event.index, event.token_ids, event.text_offset_chars, event.text) == (3, (), 1, "bc")


@pytest.mark.parametrize(("logged", "reason"), [("abcdef", "length"), ("abEND", "stop")])
def test_a_log_that_holds_all_but_the_end_leaves_nothing_to_generate(logged: str, reason: str) -> None:
    made = generation(prior_of(logged, written=logged.partition("END")[0]))
    assert made.finish_reason == reason
    assert made.unwritten() is None


@pytest.mark.parametrize("cut", range(8))
@pytest.mark.parametrize("text", ["abcdefgh", "aENENDxx", "éé🌊END", "🌊🌊"])
def test_the_log_of_two_attempts_folds_to_that_of_one(text: str, cut: int) -> None:
    order = replace(ORDER, max_output_tokens=8)

    def run(made: Generation, tokens: bytes) -> list[TokenLogEvent]:
        events: list[TokenLogEvent] = [made.started(1)]
        for token in tokens:
            if made.finish_reason is None:
                made.add_token(token, 2)
            if (event := made.unwritten()) is not None:
                events.append(event)
                made.written()
        if made.finish_reason is not None:
            events.append(made.finished(made.finish_reason, 3))
        return events

    tokens = text.encode()[:8]
    one = TokenLog()
    for event in run(generation(order=order), tokens):
        one.apply(event)
    prior = PriorAttempts()
    first = [event for event in run(generation(order=order), tokens[:cut]) if not isinstance(event, GenerationFinished)]
    for event in first:
        prior.apply(event)
    second = run(generation(prior, order), tokens[len(prior.log.token_ids) :])
    two = TokenLog()
    for event in first + second:
        two.apply(event)
    assert (two.token_ids, two.text) == (one.token_ids, one.text)
    assert isinstance(one.terminal, GenerationFinished)
    assert isinstance(two.terminal, GenerationFinished)
    assert two.terminal.finish_reason == one.terminal.finish_reason
    assert two.terminal.output_tokens == one.terminal.output_tokens == len(one.token_ids)


def test_a_failure_says_what_the_client_sees_and_what_was_used() -> None:
    made = generation()
    add(made, "ab")
    event = made.failed(Failure(500, "server_error", "generation_failed", "NaN"), 40)
    assert isinstance(event, GenerationFailed)
    assert (event.status, event.error_type, event.code, event.message) == (
        500, "server_error", "generation_failed", "NaN",
    )  # fmt: skip
    assert (event.prompt_tokens, event.output_tokens, event.first_token_at_us, event.attempt) == (3, 2, 30, 1)


def test_cached_tokens_of_the_prompt_are_told_those_of_earlier_output_are_not() -> None:
    made = generation()
    assert made.started(1, cached_tokens=2).cached_prompt_tokens == 2
    assert made.finished("length", 2).cached_prompt_tokens == 2
    assert made.started(1, cached_tokens=99).cached_prompt_tokens == len(made.order.prompt_token_ids)


def test_log_probabilities_go_with_their_tokens_in_utf8() -> None:
    made = generation()
    made.add_token(0xC3, 30, Logprobs(-0.5, ((0xC3, -0.5), (97, -1.5))))
    made.add_token(ByteTokenizer.EOS, 31, Logprobs(-2.0))
    event = made.unwritten()
    assert event is not None
    assert event.logprobs == (
        TokenLogprobs(
            logprob=-0.5,
            utf8=b"\xc3",
            top=(
                TokenLogprob(token_id=0xC3, utf8=b"\xc3", logprob=-0.5),
                TokenLogprob(token_id=97, utf8=b"a", logprob=-1.5),
            ),
        ),
        TokenLogprobs(logprob=-2.0, utf8=b"", top=()),
    )


def test_without_log_probabilities_an_event_has_none() -> None:
    made = generation()
    add(made, "ab")
    event = made.unwritten()
    assert event is not None
    assert event.logprobs == ()


def test_tokens_with_log_probabilities_that_had_to_wait_go_into_events_of_a_bounded_size() -> None:
    made = generation(order=replace(ORDER, max_output_tokens=5000))
    text = "é" * MAX_LOGPROBS + "x"
    for token in text.encode():
        made.add_token(token, 30, Logprobs(-1.0, ((token, -1.0),)))
    events = []
    while (event := made.unwritten()) is not None:
        assert event == made.unwritten(), "the same until it is written"
        events.append(event)
        made.written()
    assert [len(event.token_ids) for event in events] == [MAX_LOGPROBS, MAX_LOGPROBS, 1]
    assert [event.index for event in events] == [0, MAX_LOGPROBS, 2 * MAX_LOGPROBS]
    assert [event.text_offset_chars for event in events] == [0, MAX_LOGPROBS // 2, MAX_LOGPROBS]
    assert "".join(event.text for event in events) == text
    assert all(len(event.logprobs) == len(event.token_ids) for event in events)


def test_tokens_of_earlier_attempts_keep_theirs_and_are_not_told_again() -> None:
    made = generation(prior_of("ab"))
    made.add_token(99, 30, Logprobs(-0.1))
    event = made.unwritten()
    assert event is not None
    assert (event.index, event.token_ids, len(event.logprobs)) == (2, (99,), 1)
