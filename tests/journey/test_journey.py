"""The whole journey: 64 requests from 3 tenants over WebSocket, SSE and plain HTTP at once, on real parts.

Every answer must be the one of `generate()`, every request must have exactly one terminal event, and every event of
every topic must be in ClickHouse, once.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import clickhouse_connect
import openai
import pytest
from clickhouse_connect.driver.client import Client
from openai.types.chat import ChatCompletion
from pydantic import BaseModel, Field
from websockets.asyncio.client import connect

from eventlog.profile import BrokerProfile
from eventlog.reader import LogReader
from models.tokenizer import open_tokenizer
from schemas.events import GenerationFailed, GenerationFinished, Message, QuotaSettled, RequestRejected
from schemas.ids import request_id_of
from schemas.topics import Topics, TopicSpec
from tests.brokers import Broker
from tests.journey.system import System, running_system
from tests.lora_adapter import make_adapter
from tests.oracle import Oracle
from tests.timing import eventually, within
from tests.tiny_model import make_tiny_model

MODEL = "tiny@v1"
DEPLOYMENT = "tiny-v1"
EOS = 1  # tests/tiny_model.py: <|im_end|>
TENANTS = ("acme", "bolt", "crux")
TRANSPORTS = ("websocket", "sse", "http", "chat-sse", "chat-http")
WORDS = [
    "river",
    "valley",
    "fox",
    "lazy",
    "sea",
    "dog",
    "größe",
    "façade",
    "你好",
    "世界",
    "🌊",
    "return",
    "if",
    "range",
    "print",
    "мир",
    "brown",
    "quick",
    "jumps",
    "over",
]


@dataclass(frozen=True, slots=True)
class Ask:
    tenant: str
    transport: str
    prompt: str
    max_output_tokens: int


@dataclass(frozen=True, slots=True)
class Answer:
    ask: Ask
    response_id: str
    text: str
    output_tokens: int


def asks(tenants: list[str]) -> list[Ask]:
    draw = random.Random(64)
    return [
        Ask(
            tenant=tenants[number % len(tenants)],
            transport=TRANSPORTS[number % len(TRANSPORTS)],
            prompt=" ".join(draw.choices(WORDS, k=draw.randint(1, 40))),
            max_output_tokens=draw.randint(4, 24),
        )
        for number in range(64)
    ]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def system(broker: Broker, tmp_path_factory: pytest.TempPathFactory, model: Path) -> Iterator[System]:
    with running_system(broker, tmp_path_factory.mktemp("journey")) as system:
        system.serve_model(MODEL, model, HEADRACE_DTYPE="float32")
        yield system


@pytest.mark.timeout(240)
async def test_64_requests_of_3_tenants_over_every_transport(broker: Broker, system: System, model: Path) -> None:
    profile = broker.profile
    keys = {f"{name}-{random.SystemRandom().randrange(10**9)}": "" for name in TENANTS}
    for tenant in keys:
        keys[tenant] = await asyncio.to_thread(system.add_tenant, tenant)
    wanted = asks(list(keys))
    async with asyncio.timeout(within(120)):
        answers = await asyncio.gather(*(answer(system, keys[ask.tenant], ask) for ask in wanted))

    tokenizer, oracle = open_tokenizer(str(model)), Oracle(model)
    for got in answers:
        prompt = tokenizer.encode_chat([Message(role="user", content=got.ask.prompt)])
        expected = oracle.answer(prompt, got.ask.max_output_tokens)
        decided = len(expected) == got.ask.max_output_tokens or EOS in expected
        if EOS in expected:
            expected = expected[: expected.index(EOS) + 1]
        text = tokenizer.decode(expected)
        if decided:
            assert (got.text, got.output_tokens) == (text, len(expected)), got.ask
        else:  # a near tie: from there on both continuations are right
            assert got.text.startswith(text.rstrip("\ufffd")), got.ask

    clickhouse = client_of(system)
    await asyncio.to_thread(
        eventually, lambda: count(clickhouse, keys, "ResponseDelivered") == 64, "64 deliveries are in ClickHouse", 20
    )
    await asyncio.to_thread(assert_every_event_landed_once, profile, clickhouse, list(keys))
    assert_one_terminal_event_each(profile, list(keys), answers)
    assert_the_views_add_up(clickhouse, answers)
    shown = await asyncio.to_thread(system.headrace, "explain", answers[0].response_id)
    for stage in ("ingress", "validate", "quota", "route", "queue", "schedule", "prefill", "decode", "deliver"):
        assert stage in shown


class Size(BaseModel):
    size: Literal["small", "large"]
    count: Annotated[int, Field(ge=0, le=9)]


def test_an_answer_by_a_schema_is_parsed_by_the_official_package(system: System) -> None:
    key = system.add_tenant(f"json-{random.SystemRandom().randrange(10**9)}")
    with openai.OpenAI(base_url=f"{system.gateway_url}/v1", api_key=key, max_retries=0) as client:
        chat = client.chat.completions.parse(
            model="tiny", messages=[{"role": "user", "content": "river"}], response_format=Size, seed=1,
            max_completion_tokens=450, logprobs=True, top_logprobs=3, logit_bias={"33": 5, "34": -5},
        )  # fmt: skip
        choice = chat.choices[0]
        assert isinstance(choice.message.parsed, Size)
        assert choice.finish_reason == "stop"
        assert choice.logprobs is not None
        content = choice.logprobs.content or []
        assert b"".join(bytes(token.bytes or []) for token in content).decode() == choice.message.content
        assert {len(token.top_logprobs) for token in content} == {3}
        response = client.responses.parse(
            model="tiny", input="river", text_format=Size, max_output_tokens=450, extra_body={"seed": 1}
        )
        assert isinstance(response.output_parsed, Size)
        with pytest.raises(openai.BadRequestError) as refused:
            client.chat.completions.create(
                model="tiny", messages=[{"role": "user", "content": "river"}],
                response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "objec"}}},
            )  # fmt: skip
        assert (refused.value.code, refused.value.param) == ("invalid_json_schema", "response_format")
        with pytest.raises(openai.UnprocessableEntityError, match="echo engine"):
            client.chat.completions.create(
                model="echo", messages=[{"role": "user", "content": "x"}], logprobs=True
            )  # fmt: skip
        with pytest.raises(openai.BadRequestError, match="the tokens of"):
            client.chat.completions.create(
                model="echo", messages=[{"role": "user", "content": "x"}], logit_bias={"999": 1}
            )
    assert "JSON by a schema" in system.headrace("explain", chat.id)


def test_an_adapter_answers_its_tenant_as_a_model_with_several_choices(
    system: System, model: Path, tmp_path: Path
) -> None:
    tenant = f"tone-{random.SystemRandom().randrange(10**9)}"
    key, stranger = system.add_tenant(tenant), system.add_tenant(f"{tenant}-stranger")
    adapter, folder = f"{tenant}@v1", make_adapter(model, tmp_path / "adapter", rank=4)
    add = ("adapters", "add", adapter, "--model", MODEL, "--location", str(folder), "--tenant", tenant)
    system.headrace(*add)
    prompt = open_tokenizer(str(model)).encode_chat([Message(role="user", content="river")])
    expected = Oracle(model, adapter=folder).answer(prompt, 12)  # up to the first near tie
    assert expected != Oracle(model).answer(prompt, 12)[: len(expected)]
    if EOS in expected:
        expected = expected[: expected.index(EOS)]
    with openai.OpenAI(base_url=f"{system.gateway_url}/v1", api_key=key, max_retries=0) as client:
        eventually(lambda: adapter in {model.id for model in client.models.list()}, "the adapter is listed", 20)

        def adapted() -> ChatCompletion | None:
            """The validate stage hears of the adapter on its own: until then it is a 404."""
            with suppress(openai.NotFoundError):
                return client.chat.completions.create(
                    model=adapter, messages=[{"role": "user", "content": "river"}], temperature=0, n=2,
                    max_completion_tokens=12,
                )  # fmt: skip
            return None

        answered = eventually(adapted, "the adapter answers", 20)
        texts = [choice.message.content or "" for choice in answered.choices]
        assert texts[0] == texts[1]
        assert texts[0].startswith(open_tokenizer(str(model)).decode(expected).rstrip("\ufffd"))
        assert answered.usage is not None
        assert answered.usage.prompt_tokens == 2 * len(prompt)
    with (
        openai.OpenAI(base_url=f"{system.gateway_url}/v1", api_key=stranger, max_retries=0) as client,
        pytest.raises(openai.NotFoundError),
    ):
        client.responses.create(model=adapter, input="river")
    assert f"with adapter {adapter}" in " ".join(system.headrace("explain", answered.id).split())


async def answer(system: System, key: str, ask: Ask) -> Answer:
    if ask.transport == "websocket":
        return await over_websocket(system, key, ask)
    async with openai.AsyncOpenAI(base_url=f"{system.gateway_url}/v1", api_key=key, max_retries=0) as client:
        if ask.transport.startswith("chat"):
            return await over_chat_completions(client, ask)
        return await over_responses(client, ask)


async def over_websocket(system: System, key: str, ask: Ask) -> Answer:
    url = f"ws://{urlsplit(system.gateway_url).netloc}/v1/responses"
    create = {
        "type": "response.create", "model": "tiny", "input": ask.prompt, "temperature": 0,
        "max_output_tokens": ask.max_output_tokens,
    }  # fmt: skip
    async with connect(url, additional_headers={"Authorization": f"Bearer {key}"}) as socket:
        await socket.send(json.dumps(create))
        text, sequence = "", 0
        async for frame in socket:
            event: dict[str, Any] = json.loads(frame)
            if "sequence_number" not in event:
                continue  # rate_limits.updated is about the tenant, not about the response
            assert event["sequence_number"] == sequence, event
            sequence += 1
            if event["type"] == "response.output_text.delta":
                text += event["delta"]
            if event["type"] in {"response.completed", "response.incomplete"}:
                response = event["response"]
                assert response["output"][0]["content"][0]["text"] == text
                return Answer(ask, event["response_id"], text, response["usage"]["output_tokens"])
            assert event["type"] not in {"error", "response.failed"}, event
    raise AssertionError("the socket was closed before the answer ended")


async def over_responses(client: openai.AsyncOpenAI, ask: Ask) -> Answer:
    if ask.transport == "http":
        response = await client.responses.create(
            model="tiny", input=ask.prompt, temperature=0, max_output_tokens=ask.max_output_tokens
        )
        assert response.usage is not None
        return Answer(ask, response.id, response.output_text, response.usage.output_tokens)
    stream = await client.responses.create(
        model="tiny", input=ask.prompt, temperature=0, max_output_tokens=ask.max_output_tokens, stream=True
    )
    text, got = "", None
    async with stream:
        async for event in stream:  # to its end: see over_chat_completions
            if event.type == "response.output_text.delta":
                text += event.delta
            if event.type == "response.completed" or event.type == "response.incomplete":
                assert event.response.output_text == text
                assert event.response.usage is not None
                got = Answer(ask, event.response.id, text, event.response.usage.output_tokens)
    assert got is not None, "the stream ended before the answer"
    return got


async def over_chat_completions(client: openai.AsyncOpenAI, ask: Ask) -> Answer:
    if ask.transport == "chat-http":
        completion = await client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": ask.prompt}], temperature=0,
            max_completion_tokens=ask.max_output_tokens,
        )  # fmt: skip
        assert completion.usage is not None
        text = completion.choices[0].message.content or ""
        return Answer(ask, completion.id, text, completion.usage.completion_tokens)
    stream = await client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": ask.prompt}], temperature=0, stream=True,
        max_completion_tokens=ask.max_output_tokens, stream_options={"include_usage": True},
    )  # fmt: skip
    text, got = "", None
    # Read to its end: a stream left before it is a cycle of suspended async generators, and where the collector finds
    # that in another thread than the loop's, Python 3.11 closes one of them in both threads at once.
    async with stream:
        async for chunk in stream:
            text += "".join(choice.delta.content or "" for choice in chunk.choices)
            if chunk.usage is not None:
                got = Answer(ask, chunk.id, text, chunk.usage.completion_tokens)
    assert got is not None, "the stream ended without its usage"
    return got


def client_of(system: System) -> Client:
    where = urlsplit(system.clickhouse_url)
    assert where.hostname is not None
    assert where.port is not None
    return clickhouse_connect.get_client(host=where.hostname, port=where.port, database="headrace")


def count(clickhouse: Client, tenants: dict[str, str], event_type: str) -> int:
    found = clickhouse.query(
        "SELECT count() FROM events WHERE event_type = {event_type:String} AND tenant IN {tenants:Array(String)}",
        parameters={"event_type": event_type, "tenants": list(tenants)},
    )
    return int(found.result_rows[0][0])


def specs_of(tenants: list[str]) -> list[TopicSpec]:
    topics = Topics()
    return topics.shared() + [spec for tenant in tenants for spec in topics.of_tenant(tenant, {DEPLOYMENT})]


def assert_every_event_landed_once(profile: BrokerProfile, clickhouse: Client, tenants: list[str]) -> None:
    specs = specs_of(tenants)
    starts = {(spec.name, partition): 0 for spec in specs for partition in range(spec.partitions)}
    with LogReader(profile, client_id="journey") as reader:
        written = {(record.topic, record.partition, record.offset) for record in reader.read_to_end(starts)}
    names = [spec.name for spec in specs]

    def landed() -> Counter[tuple[str, int, int]]:
        rows = clickhouse.query(
            "SELECT topic, partition, offset FROM (SELECT topic, partition, offset FROM events UNION ALL "
            "SELECT topic, partition, offset FROM token_events) WHERE topic IN {topics:Array(String)}",
            parameters={"topics": names},
        )
        return Counter((str(topic), int(partition), int(offset)) for topic, partition, offset in rows.result_rows)

    eventually(lambda: written <= set(landed()), f"all {len(written)} records are in ClickHouse", 20)
    assert max(landed().values()) == 1, "a record is in ClickHouse twice"


def assert_one_terminal_event_each(profile: BrokerProfile, tenants: list[str], answers: list[Answer]) -> None:
    ends: Counter[str] = Counter()
    settled: Counter[str] = Counter()
    starts = {
        (f"{kind}.{tenant}", partition): 0
        for tenant in tenants
        for kind, partitions in (("tokens", Topics().tokens), ("lifecycle", Topics().lifecycle))
        for partition in range(partitions)
    }
    with LogReader(profile, client_id="journey") as reader:
        for event in (record.event() for record in reader.read_to_end(starts)):
            if isinstance(event, GenerationFinished | GenerationFailed | RequestRejected):
                ends[event.request_id] += 1
            if isinstance(event, QuotaSettled):
                settled[event.request_id] += 1
    asked = {request_id_of(got.response_id): 1 for got in answers}
    assert ends == asked
    assert settled == asked


def assert_the_views_add_up(clickhouse: Client, answers: list[Answer]) -> None:
    rows = clickhouse.query(
        "SELECT request_id, status, output_tokens, total_ms, ingress_ms + validate_ms + quota_ms + route_ms + queue_ms "
        "+ schedule_ms + prefill_ms + decode_ms + deliver_ms FROM requests WHERE request_id IN {ids:Array(String)}",
        parameters={"ids": [request_id_of(got.response_id) for got in answers]},
    ).result_rows
    tokens = {request_id_of(got.response_id): got.output_tokens for got in answers}
    assert {row[0]: row[2] for row in rows} == tokens
    for _, status, _, total_ms, stages_ms in rows:
        assert status in {"completed", "incomplete"}
        assert abs(total_ms - stages_ms) < 1
    breakdown = clickhouse.query(
        "SELECT stage, sum(requests) FROM latency_breakdown WHERE tenant IN {tenants:Array(String)} GROUP BY stage",
        parameters={"tenants": sorted({got.ask.tenant for got in answers})},
    ).result_rows
    assert {stage: total for stage, total in breakdown}["total"] == len(answers)  # noqa: C416
