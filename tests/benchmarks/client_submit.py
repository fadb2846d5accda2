"""Requests a second from headrace-client's Producer to the broker's acknowledgement, against bare confluent-kafka.

Both write 1 KB prompts to the same topic with the same client settings. The bare producer is given records that are
ready: the same values, keys and headers, taken from what the client writes. It has a delivery callback, as whoever
wants to know that a record has arrived needs one; it makes no ids, no events and no Avro, and keeps nothing.
Rounds are interleaved and medians compared.
"""

from __future__ import annotations

import gc
import secrets
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import KafkaError
from confluent_kafka import Producer as KafkaProducer

from eventlog.profile import BrokerProfile
from eventlog.reader import LogReader
from headrace_client import Producer
from headrace_client.settings import ProducerSettings
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
        ours, bare = [], []
        for _ in range(ROUNDS):
            ours.append(through_the_client(broker.bootstrap_servers, tenant))
            bare.append(bare_producer(broker.bootstrap_servers, tenant, ready))
    return [BenchRow("client_submit_1KB", statistics.median(ours), statistics.median(bare), "requests/s", BAR)]


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


def bare_producer(bootstrap_servers: str, tenant: str, ready: Sequence[Ready]) -> float:
    producer = KafkaProducer(ProducerSettings(bootstrap_servers, SOURCE).producer())
    topic = requests_topic(tenant)
    failed = 0

    def delivered(error: KafkaError | None, _message: object) -> None:
        nonlocal failed
        failed += error is not None

    producer.produce(topic, *ready[0][:2], headers=ready[0].headers)
    producer.flush()
    gc.collect()
    begin = time.perf_counter()
    for value, key, headers in ready:
        producer.produce(topic, value, key, headers=headers, on_delivery=delivered)
        producer.poll(0)
    producer.flush()
    seconds = time.perf_counter() - begin
    assert failed == 0
    return REQUESTS / seconds


def written(profile: BrokerProfile, tenant: str) -> list[Ready]:
    """What the client has written so far, as many as a round has."""
    found: list[Ready] = []
    with LogReader(profile, client_id="bench-reader") as reader:
        reader.assign_all({(requests_topic(tenant), partition): 0 for partition in range(TOPICS.requests)})
        while len(found) < REQUESTS:
            records = reader.poll(1.0).records
            found += [Ready(record.value, record.key or b"", list(record.headers)) for record in records]
    return found[:REQUESTS]
