"""A record that can't be read may be as large as its topic takes: it is kept whole, or counted, and blocks nobody."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from eventlog.admin import LogAdmin
from eventlog.dead_letter_log import DeadLetterLog
from eventlog.letters import Origin
from eventlog.producer import EventProducer
from eventlog.profile import BrokerProfile
from eventlog.reader import LogReader
from eventlog.registry import Registry
from schemas.events import RequestRouted
from schemas.topics import Topics, TopicSpec, dead_letters_topic, requests_topic, work_topic
from streams.metrics import StreamsMetrics
from streams.settings import StreamsSettings
from tests.contract.test_streams import MODEL, Log, new_id, request, running, wait_until
from tests.timing import within

pytestmark = pytest.mark.integration  # the embedded broker has other limits

TOPICS = Topics()


@pytest.fixture(scope="module")
def log(profile: BrokerProfile) -> Iterator[Log]:
    with LogAdmin(profile, TOPICS) as admin, EventProducer(profile, client_id="test") as producer:
        admin.create_shared_topics()
        admin.register_model(MODEL, Registry())
        yield Log(profile, admin, producer)


@pytest.fixture
def settings(profile: BrokerProfile, tmp_path: Path) -> StreamsSettings:
    return StreamsSettings(profile, TOPICS, tmp_path, group=f"streams-{secrets.token_hex(4)}")


def taken(profile: BrokerProfile, topic: str, value: bytes, compression: str = "none") -> bool:
    """Whether the broker took this record, in partition 0, from a client without limits of its own."""
    errors: list[KafkaError | None] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        errors.append(error)

    settings = {"message.max.bytes": 8 * 1024 * 1024, "compression.type": compression, "linger.ms": 0}
    producer = Producer({**profile.client("large"), **settings})
    producer.produce(topic, value, b"k", partition=0, on_delivery=on_delivery)
    assert producer.flush(within(10)) == 0
    (error,) = errors
    if error is not None and error.code() != KafkaError.MSG_SIZE_TOO_LARGE:
        raise KafkaException(error)
    return error is None


def largest(takes: Callable[[int], bool], low: int, high: int) -> int:
    """The largest size that is taken; `low` is."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if takes(middle) else (low, middle)
    return low


def good(log: Log, tenant: str) -> str:
    """A request behind the others in partition 0; its id."""
    request_id = new_id()
    log.write(requests_topic(tenant), request(tenant, request_id, "hi", MODEL.model_version), request_id, 0)
    return request_id


async def test_a_record_of_exactly_the_topics_maximum_is_kept_whole_and_goes_back(
    profile: BrokerProfile, log: Log, settings: StreamsSettings, tenant_name: str
) -> None:
    log.register(tenant_name)
    topic = requests_topic(tenant_name)
    scratch = f"scratch.{tenant_name}"
    with LogAdmin(profile, TOPICS) as admin:
        admin.ensure([TopicSpec(scratch, 1, 60_000)])
    noise = os.urandom(1_100_000)  # does not compress
    size = largest(lambda size: taken(profile, scratch, noise[:size]), 1_000_000, 1_100_000)
    assert taken(profile, topic, noise[:size])
    assert not taken(profile, topic, noise[: size + 1])
    async with running(settings):
        await log.wait_for(RequestRouted, work_topic(MODEL.deployment, tenant_name), good(log, tenant_name))

    name = Origin(topic, 0, 0)
    with DeadLetterLog(profile, client_id="test") as letters:
        found = letters.find([dead_letters_topic(tenant_name)]).letters
        ((letter, contents),) = letters.contents([found[name]])
        assert contents.value == noise[:size]
        offset = letters.requeue(letter, contents, operator="test", now_us=1)
    with LogReader(profile, client_id="test") as reader:
        record = next(iter(reader.read_to_end({(topic, 0): offset})))
    assert record.value == noise[:size]


@pytest.mark.parametrize("reason", ["the topic of letters is from before", "no letter has so much room"])
async def test_a_record_that_no_letter_has_room_for_is_counted_and_the_next_one_is_served(
    profile: BrokerProfile, log: Log, settings: StreamsSettings, tenant_name: str, reason: str
) -> None:
    if reason == "the topic of letters is from before":
        with LogAdmin(profile, TOPICS) as admin:
            admin.ensure([TopicSpec(dead_letters_topic(tenant_name), 1, None)])
        value, compression = os.urandom(1_048_400), "none"
    else:
        value, compression = bytes(3_000_000), "lz4"
    log.register(tenant_name)
    assert taken(profile, requests_topic(tenant_name), value, compression)
    metrics = StreamsMetrics()
    async with running(settings, metrics):
        await log.wait_for(RequestRouted, work_topic(MODEL.deployment, tenant_name), good(log, tenant_name))
        labels = {"stage": "validate", "reason": "undecodable"}
        name = "headrace_streams_dead_letters_lost_total"
        await wait_until(lambda: metrics.registry.get_sample_value(name, labels) or None)
    with DeadLetterLog(profile, client_id="test") as letters:
        assert letters.find([dead_letters_topic(tenant_name)]).letters == {}
