"""`n` choices of one answer, by the official `openai` package: requests of their own, shown as one."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from eventlog.reader import LogReader
from schemas.events import RequestSubmitted
from schemas.ids import request_id_of, response_id_of
from schemas.topics import Topics, requests_topic
from tests.contract.gateway_world import Step, World
from tests.gateway_events import admitted, failed, finished, rejected, started, tokens
from tests.timing import eventually

MESSAGES: Any = [{"role": "user", "content": "one two three"}]


def by_seed(request: RequestSubmitted) -> list[Step]:
    """The seed, a character an event."""
    digits = list(str(request.seed))
    return [admitted(request), started(request), *tokens(request, digits), finished(request, len(digits))]


def test_choices_are_requests_of_their_own_and_one_answer(here: World, client: openai.OpenAI) -> None:
    model = f"choices-{secrets.token_hex(4)}"
    here.upstream.script_for[model] = by_seed
    raw = client.chat.completions.with_raw_response.create(model=model, messages=MESSAGES, n=3, seed=40)
    answer = raw.parse()
    assert [(choice.index, choice.message.content) for choice in answer.choices] == [(0, "40"), (1, "41"), (2, "42")]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (9, 6)
    ids = raw.headers["x-headrace-request-ids"].split(", ")
    assert [request_id_of(answer.id), raw.headers["x-request-id"]] == [ids[0]] * 2
    texts = [client.responses.retrieve(response_id_of(request_id)).output_text for request_id in ids]
    assert texts == ["40", "41", "42"]
    assert sorted(request.request_id for request in here.upstream.requests_for(model)) == sorted(ids)
    traces = {trace_of(here, request_id) for request_id in ids}
    assert traces == {ids[0].replace("-", "")}, "one answer is one trace"


def test_streamed_choices_are_interleaved_and_end_with_the_usage_of_all(here: World, client: openai.OpenAI) -> None:
    model = f"choices-{secrets.token_hex(4)}"
    gates = {70: threading.Event(), 71: threading.Event()}

    def answer(request: RequestSubmitted) -> list[Step]:
        first, second = tokens(request, [str(request.seed), "!"])
        gate = gates[request.seed or 0]
        return [admitted(request), started(request), first, gate, second, finished(request, 2)]

    here.upstream.script_for[model] = answer
    seen: list[tuple[int, str]] = []
    usage = None
    with client.chat.completions.create(
        model=model, messages=MESSAGES, n=2, seed=70, stream=True, stream_options={"include_usage": True}
    ) as stream:
        for chunk in stream:
            usage = chunk.usage or usage
            seen += [(choice.index, choice.delta.content) for choice in chunk.choices if choice.delta.content]
            if len(seen) == 2:
                gates[71].set()
            if len(seen) == 3:
                gates[70].set()
    assert sorted(seen[:2]) == [(0, "70"), (1, "71")]
    assert seen[2:] == [(1, "!"), (0, "!")]
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (6, 4)
    completion = client.completions.create(model="chat", prompt="one two", n=2)
    assert [choice.text for choice in completion.choices] == ["one two ", "one two "]


@pytest.mark.parametrize("stream", [False, True])
def test_when_one_choice_is_refused_the_answer_is_and_the_others_are_cancelled(
    here: World, client: openai.OpenAI, stream: bool
) -> None:
    model = f"choices-{secrets.token_hex(4)}"

    def answer(request: RequestSubmitted) -> list[Step]:
        if request.seed == 1:
            return [rejected(request, 429, "rate_limit_error", "concurrency_exceeded", 1000)]
        return [admitted(request), started(request), threading.Event()]

    here.upstream.script_for[model] = answer
    with pytest.raises(openai.RateLimitError) as limited:
        client.chat.completions.create(model=model, messages=MESSAGES, n=3, seed=0, stream=stream)
    requests = requests_by_seed(here, model, 3)
    assert limited.value.response.headers["x-request-id"] == requests[1]
    eventually(
        lambda: {requests[0], requests[2]} <= {cancel.request_id for cancel in here.upstream.cancels},
        "the other choices are cancelled",
    )
    assert requests[1] not in {cancel.request_id for cancel in here.upstream.cancels}


def test_when_one_choice_fails_amid_a_stream_the_stream_ends_with_its_error(
    here: World, client: openai.OpenAI, http: httpx.Client
) -> None:
    model = f"choices-{secrets.token_hex(4)}"
    gate = threading.Event()

    def answer(request: RequestSubmitted) -> list[Step]:
        begun: list[Step] = [admitted(request), started(request), *tokens(request, ["a"])]
        return [*begun, gate, failed(request, 1)] if request.seed == 6 else [*begun, threading.Event()]

    here.upstream.script_for[model] = answer
    body = {"model": model, "messages": MESSAGES, "n": 2, "seed": 5, "stream": True}
    with http.stream("POST", "/v1/chat/completions", json=body) as answered:
        lines = [
            line.removeprefix("data: ") for line in opening(answered.iter_lines(), gate) if line.startswith("data")
        ]
    error, done = json.loads(lines[-2])["error"], lines[-1]
    assert (error["code"], done) == ("engine_failed", "[DONE]")
    requests = requests_by_seed(here, model, 2)
    assert error["request_id"] == requests[6]
    eventually(
        lambda: requests[5] in {cancel.request_id for cancel in here.upstream.cancels}, "the other choice is cancelled"
    )


def opening(lines: Iterator[str], gate: threading.Event) -> Iterator[str]:
    """The lines; the gate is opened when both choices have said something."""
    spoken = 0
    for line in lines:
        spoken += '"content":"a"' in line
        if spoken == 2:
            gate.set()
        yield line


def requests_by_seed(here: World, model: str, count: int) -> dict[int | None, str]:
    """Ids by seed, when so many have come."""

    def found() -> dict[int | None, str] | None:
        ids = {request.seed: request.request_id for request in here.upstream.requests_for(model)}
        return ids if len(ids) == count else None

    return eventually(found, f"{count} requests are in the log")


def trace_of(here: World, request_id: str) -> str:
    """Trace id in the header of a request's record."""
    starts = {(requests_topic(here.tenant), partition): 0 for partition in range(Topics().requests)}
    with LogReader(here.profile, client_id="trace") as reader:
        records = reader.read_to_end(starts)
        (traceparent,) = [record.traceparent for record in records if record.key == request_id.encode()]
    assert traceparent is not None
    return traceparent.decode().split("-")[1]
