"""The streams under a flood while their broker is killed: afterwards all is decided, and what is done is committed.

Faust's own count of acknowledgements did not outlive this: for hours nothing more was committed, or 16 records at a
time.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from eventlog.admin import LogAdmin
from eventlog.clock import now_us
from eventlog.errors import LogBusy
from eventlog.producer import EventProducer
from eventlog.registry import Registry
from schemas.events import RequestRouted, TenantRegistered
from schemas.topics import VALIDATED, requests_topic, work_topic
from streams.settings import StreamsSettings
from tests.brokers import Broker
from tests.contract.test_streams import MODEL, TOPICS, Log, new_id, request, running, wait_until
from tests.killable_kafka import KillableKafka, killable_kafka
from tests.timing import eventually

pytestmark = [pytest.mark.integration, pytest.mark.slow]
REQUESTS = 8_000
TENANTS = [f"flood-{number}" for number in range(4)]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KillableKafka]:
    home = os.environ.get("KAFKA_HOME")
    if not home:
        pytest.skip("needs an Apache Kafka that it may kill: KAFKA_HOME")
    with killable_kafka(home, tmp_path_factory.mktemp("kafka")) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def broker(kafka: KillableKafka) -> Broker:
    return kafka.broker


def committed(broker: Broker, group: str) -> list[tuple[int, int]]:
    """(committed offset, end) of each partition of `validated`."""
    consumer = Consumer(broker.profile.consumer("test", group_id=group))
    try:
        asked = [TopicPartition(VALIDATED.name, number) for number in range(TOPICS.validated)]
        offsets = [max(0, at.offset) for at in consumer.committed(asked, timeout=10.0)]
        return [
            (offset, consumer.get_watermark_offsets(at, timeout=10.0)[1])
            for at, offset in zip(asked, offsets, strict=True)
        ]
    finally:
        consumer.close()


def flood(producer: EventProducer) -> set[str]:
    """All requests, as fast as the log takes them; their ids."""
    sent = set()
    for number in range(REQUESTS):
        tenant, request_id = TENANTS[number % len(TENANTS)], new_id(number % TOPICS.tokens)
        event = request(tenant, request_id, f"hello {number}", MODEL.model_version)

        def is_sent(event: object = event, tenant: str = tenant, request_id: str = request_id) -> bool:
            try:
                producer.send(requests_topic(tenant), event, key=request_id)  # type: ignore[arg-type]
            except LogBusy:
                return False
            return True

        eventually(is_sent, "the log has room", 60)
        sent.add(request_id)
    return sent


async def test_after_a_flood_and_a_killed_broker_everything_is_decided_and_committed(
    kafka: KillableKafka, broker: Broker, tmp_path: Path
) -> None:
    with LogAdmin(broker.profile, TOPICS) as admin, EventProducer(broker.profile, client_id="test") as producer:
        admin.create_shared_topics()
        admin.register_model(MODEL, Registry())
        log = Log(broker.profile, admin, producer)
        for tenant in TENANTS:
            unlimited = TenantRegistered(
                tenant=tenant, at_us=now_us(), requests_per_minute=10**6, tokens_per_minute=10**9,
                max_concurrent_requests=10**6,
            )  # fmt: skip
            admin.register_tenant(unlimited, Registry(models={MODEL.model_version: MODEL}))
        settings = StreamsSettings(broker.profile, TOPICS, tmp_path, group="flooded")
        async with running(settings):
            flooding = asyncio.create_task(asyncio.to_thread(flood, producer))
            await wait_until(lambda: any(offset for offset, _ in committed(broker, "flooded-decide")) or None)
            kafka.kill()
            await asyncio.to_thread(kafka.start)
            sent = await flooding
            assert await asyncio.to_thread(producer.flush, 30.0) == 0

            # the flood is as long in `validated` as it was, or longer: what was decided before the crash may come twice
            def all_is_committed() -> bool | None:
                offsets = committed(broker, "flooded-decide")
                return (all(n == end for n, end in offsets) and sum(end for _, end in offsets) >= REQUESTS) or None

            await wait_until(all_is_committed)
        topics = [work_topic(MODEL.deployment, tenant) for tenant in TENANTS]
        routed = {e.request_id for topic in topics for e in log.read(topic) if isinstance(e, RequestRouted)}
        assert routed == sent
