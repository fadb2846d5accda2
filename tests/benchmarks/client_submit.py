"""Requests a second from headrace-client's Producer to the broker's acknowledgement, against bare confluent-kafka.

All write 1 KB prompts to the same topic with the same client settings, and each has a delivery callback, as whoever
wants to know that a record has arrived needs one. There are two baselines:

- `client_submit_vs_ready_records`: produce is given records that are ready, the same values, keys and headers, taken
  from what the client wrote. It makes no ids, no events, no Avro and no headers, and keeps nothing. What is left is
  about 7 us of a core for each record, so the bar leaves the client 3 us to make one.
- `client_submit_vs_by_hand`: a service without the client makes what the contract asks for, with fastavro.

Rounds are interleaved and medians compared.
"""

from __future__ import annotations

import gc
import secrets
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

import fastavro
from confluent_kafka import KafkaError
from confluent_kafka import Producer as KafkaProducer

from eventlog.profile import BrokerProfile
from eventlog.reader import LogReader
from headrace_client import Producer
from headrace_client.settings import ProducerSettings
from schemas.catalog import full_name
from schemas.codec import SCHEMAS
from schemas.events import RequestSubmitted
from schemas.topics import requests_topic
from tests.benchmarks.row import BenchRow
from tests.brokers import running_broker
from tests.contract.gateway_world import TOPICS, register_tenant

REQUESTS: Final = 20_000
ROUNDS: Final = 5
BAR: Final = 0.7
PROMPT: Final = "All work. " * 102
SOURCE: Final = "bench"


class Ready(NamedTuple):
    """A record to be produced as it is."""

    value: bytes
    key: bytes
    headers: list[tuple[str, str | bytes | None]]


def run() -> list[BenchRow]:
    with (
        tempfile.TemporaryDirectory() as directory,
        running_broker(Path(directory), {"HEADRACE_TEST_BROKER": "embedded"}) as broker,
    ):
        profile = BrokerProfile(broker.bootstrap_servers, "embedded")
        tenant = f"bench-{secrets.token_hex(4)}"
        register_tenant(profile, tenant)
        through_the_client(broker.bootstrap_servers, tenant)
        ready = written(profile, tenant)
        ours, bare, by_hand = [], [], []
        for _ in range(ROUNDS):
            ours.append(through_the_client(broker.bootstrap_servers, tenant))
            bare.append(bare_producer(broker.bootstrap_servers, tenant, lambda: ready))
            by_hand.append(bare_producer(broker.bootstrap_servers, tenant, lambda: made_by_hand(tenant)))
    rate = statistics.median(ours)
    return [
        BenchRow("client_submit_vs_ready_records", rate, statistics.median(bare), "requests/s", BAR),
        BenchRow("client_submit_vs_by_hand", rate, statistics.median(by_hand), "requests/s", BAR),
    ]


def through_the_client(bootstrap_servers: str, tenant: str) -> float:
    with Producer(bootstrap_servers, source=SOURCE) as producer:
        first = producer.submit(tenant=tenant, model="chat", prompt=PROMPT, max_output_tokens=64)
        producer.wait_delivered(first)  # the connection is there, and the topic is known
        gc.collect()
        begin = time.perf_counter()
        submissions = [
            producer.submit(tenant=tenant, model="chat", prompt=PROMPT, max_output_tokens=64)
            for _ in range(REQUESTS)
        ]  # fmt: skip
        assert producer.flush(60) == 0
        seconds = time.perf_counter() - begin
        assert all(submission.delivered for submission in submissions)
    return REQUESTS / seconds


def bare_producer(bootstrap_servers: str, tenant: str, records: Callable[[], Iterable[Ready]]) -> float:
    producer = KafkaProducer(ProducerSettings(bootstrap_servers, SOURCE).producer())
    topic = requests_topic(tenant)
    failed = 0

    def delivered(error: KafkaError | None, _message: object) -> None:
        nonlocal failed
        failed += error is not None

    for value, key, headers in islice(records(), 1):
        producer.produce(topic, value, key, headers=headers)
    producer.flush()
    gc.collect()
    begin = time.perf_counter()
    for value, key, headers in records():
        producer.produce(topic, value, key, headers=headers, on_delivery=delivered)
        producer.poll(0)
    producer.flush()
    seconds = time.perf_counter() - begin
    assert failed == 0
    return REQUESTS / seconds


def made_by_hand(tenant: str) -> Iterator[Ready]:
    """Records as the contract asks for them, with nothing of ours but the schema."""
    schema = SCHEMAS[RequestSubmitted]
    source = f"/{SOURCE}".encode()
    kind = full_name(RequestSubmitted).encode()
    for _ in range(REQUESTS):
        now = time.time_ns() // 1000
        number = (now // 1000) << 80 | 7 << 76 | secrets.randbits(12) << 64 | 2 << 62 | secrets.randbits(46) << 16
        request_id = str(UUID(int=number))
        record = {
            "request_id": request_id, "tenant": tenant, "at_us": now, "received_at_us": now, "source": SOURCE,
            "model": "chat", "messages": [{"role": "user", "content": PROMPT}], "max_output_tokens": 64,
        }  # fmt: skip
        body = BytesIO()
        body.write(schema.header)
        fastavro.schemaless_writer(body, schema.parsed, record)
        headers: list[tuple[str, str | bytes | None]] = [
            ("ce_id", f"RequestSubmitted/{request_id}".encode()), ("ce_source", source), ("ce_specversion", b"1.0"),
            ("ce_type", kind), ("ce_time", datetime.fromtimestamp(now / 1e6, UTC).isoformat().encode()),
            ("traceparent", f"00-{number:032x}-{secrets.randbits(64):016x}-01".encode()),
            ("request_id", request_id.encode()), ("tenant", tenant.encode()),
        ]  # fmt: skip
        yield Ready(body.getvalue(), request_id.encode(), headers)


def written(profile: BrokerProfile, tenant: str) -> list[Ready]:
    """What the client has written so far, as many as a round has."""
    found: list[Ready] = []
    with LogReader(profile, client_id="bench-reader") as reader:
        reader.assign_all({(requests_topic(tenant), partition): 0 for partition in range(TOPICS.requests)})
        while len(found) < REQUESTS:
            records = reader.poll(1.0).records
            found += [Ready(record.value, record.key or b"", list(record.headers)) for record in records]
    return found[:REQUESTS]
