"""Every record of every topic is in ClickHouse once, whatever dies, on whatever broker is at hand."""

from __future__ import annotations

import asyncio
import random
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from eventlog.admin import LogAdmin
from eventlog.clock import now_us
from eventlog.producer import EventProducer
from eventlog.profile import BrokerProfile
from eventlog.registry import Registry
from infra.clickhouse.access import HttpAccess, records
from infra.clickhouse.errors import ClickHouseFault
from infra.clickhouse.interface import HttpInterface
from infra.clickhouse.schema import load_migrations
from infra.runtime.ports import free_port
from schemas.codec import encode
from schemas.events import TenantRegistered
from schemas.ids import response_id_of
from schemas.topics import Topics, requests_topic, tokens_topic, work_topic
from streams.sink.clickhouse import ClickHouseServer, EmbeddedClickHouse
from streams.sink.service import run
from streams.sink.settings import SinkSettings
from tests.clickhouse_server import ClickHouseDouble
from tests.request_story import DEPLOYMENT, Story
from tests.timing import eventually, within

TOPICS = Topics()


def register(admin: LogAdmin, tenant: str) -> None:
    event = TenantRegistered(
        tenant=tenant, at_us=now_us(), requests_per_minute=60, tokens_per_minute=1000, max_concurrent_requests=4
    )
    admin.register_tenant(event, Registry())
    admin.ensure(TOPICS.of_tenant(tenant, {DEPLOYMENT}))


@contextmanager
def sink_process(profile: BrokerProfile, path: Path, group: str, dies_at: str = "") -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.sink_process", profile.bootstrap_servers, profile.kind, str(path), group]
    with subprocess.Popen([*command, dies_at], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@dataclass(slots=True)
class Traffic:
    """Writes records of both tables, and garbage, to all partitions of a tenant's topics for as long as it runs."""

    producer: EventProducer
    tenant: str
    sent: dict[tuple[str, int], int] = field(default_factory=dict)  # how many, for each partition
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        draw = random.Random(self.tenant)
        story = Story(tenant=self.tenant)
        while not self.stop.wait(0.002):
            topic = draw.choice([tokens_topic(self.tenant), requests_topic(self.tenant)])
            partition = draw.randrange(4)
            values = [encode(story.tokens(1, 0)[1]), encode(story.started()[1]), b"garbage"]
            for value in draw.choices(values, weights=[6, 3, 1], k=draw.randrange(1, 12)):
                self.producer.send_bytes(topic, value, key=b"k", headers=[], partition=partition)
                self.sent[topic, partition] = self.sent.get((topic, partition), 0) + 1


@contextmanager
def traffic(producer: EventProducer, tenant: str) -> Iterator[Traffic]:
    running = Traffic(producer, tenant)
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        yield running
    finally:
        running.stop.set()
        thread.join()
        assert producer.flush(within(10)) == 0


def rows_of(access: HttpAccess, tenant: str) -> dict[tuple[str, int], tuple[int, int, int]]:
    """For each partition of the tenant, letters aside: rows, different offsets, highest offset."""
    found = records(
        access,
        "SELECT topic, partition, count() AS rows, uniqExact(log_id, offset) AS offsets, max(offset) AS last FROM "
        "(SELECT log_id, topic, partition, offset FROM events UNION ALL "
        "SELECT log_id, topic, partition, offset FROM token_events) "
        "WHERE topic LIKE {like:String} AND topic NOT LIKE 'dead-letters.%' GROUP BY topic, partition",
        {"like": f"%.{tenant}"},
    )
    return {(row["topic"], row["partition"]): (row["rows"], row["offsets"], row["last"]) for row in found}


def garbage_and_letters(access: HttpAccess, tenant: str) -> tuple[int, int, int]:
    """Records of the token log that can't be read, letters of them by their origins, and letters of other topics."""
    query = """
        SELECT countIf(topic = {tokens:String} AND event_type = '') AS garbage,
               uniqExactIf((JSONExtractInt(payload, 'origin_partition'), JSONExtractInt(payload, 'origin_offset')),
                   event_type = 'DeadLettered' AND origin = {tokens:String}) AS letters,
               countIf(event_type = 'DeadLettered' AND origin != {tokens:String}) AS others
        FROM (SELECT *, JSONExtractString(payload, 'origin_topic') AS origin FROM events)
        WHERE topic LIKE {like:String}"""
    (row,) = records(access, query, {"tokens": tokens_topic(tenant), "like": f"%.{tenant}"})
    return row["garbage"], row["letters"], row["others"]


def everything_once(sent: dict[tuple[str, int], int]) -> dict[tuple[str, int], tuple[int, int, int]]:
    return {position: (count, count, count - 1) for position, count in sent.items()}


DEATHS = (
    "insert:token_events:before:2",
    "insert:token_events:after:2",
    "insert:events:after:3",
    "commit:after:2",
    "random",
    "random",
)


@pytest.mark.timeout(300)
def test_a_sink_that_is_killed_at_any_moment_loses_nothing_and_repeats_nothing(
    profile: BrokerProfile, admin: LogAdmin, producer: EventProducer, tenant_name: str, tmp_path: Path
) -> None:
    register(admin, tenant_name)
    path, group = tmp_path / "clickhouse", f"sink-{tenant_name}"
    draw = random.Random(secrets.randbits(32))
    with traffic(producer, tenant_name) as running:
        for number, death in enumerate(DEATHS):
            # Every second one is of a new group, which has no offsets: the tables alone know what they have.
            dies_at = "" if death == "random" else death
            with sink_process(profile, path, f"{group}-{number // 2}", dies_at) as process:
                if death == "random":
                    assert process.stdout is not None
                    assert process.stdout.readline()
                    threading.Event().wait(draw.uniform(0.0, 0.5))
                    process.kill()
                assert process.wait(within(60)) == -9
    with sink_process(profile, path, f"{group}-last") as process:
        assert process.stdout is not None
        with HttpAccess.at(f"http://127.0.0.1:{int(process.stdout.readline())}") as access:
            expected = everything_once(running.sent)
            eventually(
                lambda: sum(rows for rows, _, _ in rows_of(access, tenant_name).values()) >= sum(running.sent.values()),
                "all rows are there", seconds=60,
            )  # fmt: skip
            assert rows_of(access, tenant_name) == expected
            garbage, _, others = garbage_and_letters(access, tenant_name)
            assert others == 0, "letters for requests are written by validate"
            eventually(
                lambda: garbage_and_letters(access, tenant_name)[1] == garbage, "each has its letter", seconds=30
            )  # fmt: skip
        process.terminate()
        assert process.wait(within(20)) == 0


@contextmanager
def sink_here(settings: SinkSettings) -> Iterator[None]:
    """A sink on a thread of this process, ready."""
    ready, failures = threading.Event(), list[BaseException]()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    def work() -> None:
        try:
            loop.run_until_complete(run(settings, stop=stop, ready=ready.set))
        except BaseException as error:
            failures.append(error)
        finally:
            ready.set()
            loop.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert ready.wait(within(60))
        yield
    finally:
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)
        thread.join()
    assert not failures, failures


def test_a_request_is_found_by_its_id_and_a_tenant_registered_later_is_noticed(
    profile: BrokerProfile, admin: LogAdmin, producer: EventProducer, tenant_name: str, tmp_path: Path
) -> None:
    ports: list[int] = []
    settings = SinkSettings(
        profile, EmbeddedClickHouse(tmp_path), load_migrations(), group=f"sink-{tenant_name}", batch_seconds=0.05,
        read_interface=HttpInterface(port=0, listening=ports.append), metrics_port=free_port(),
    )  # fmt: skip
    story = Story(tenant=tenant_name)
    with sink_here(settings), HttpAccess.at(f"http://127.0.0.1:{ports[0]}") as access:
        register(admin, tenant_name)
        for topic, event in story.whole():
            producer.send(topic, event, key=tenant_name)
        producer.send_bytes(work_topic(DEPLOYMENT, tenant_name), b"garbage", key=b"k", headers=[])
        assert producer.flush(within(10)) == 0
        query = "SELECT status, output_tokens, total_ms FROM requests WHERE request_id = {id:String}"
        found = eventually(
            lambda: [row for row in records(access, query, {"id": story.request_id}) if row["total_ms"] == 40.1],
            f"{response_id_of(story.request_id)} is whole", seconds=30,
        )  # fmt: skip
        assert found == [{"status": "completed", "output_tokens": 4, "total_ms": 40.1}]
        bad = "SELECT topic, payload, decode_error FROM events WHERE event_type = '' AND tenant = {tenant:String}"
        assert eventually(lambda: records(access, bad, {"tenant": tenant_name}), "the garbage is kept") == [
            {"topic": work_topic(DEPLOYMENT, tenant_name), "payload": "garbage", "decode_error": "undecodable"}
        ]
        told = httpx.get(f"http://127.0.0.1:{settings.metrics_port}/metrics").text
        assert 'headrace_sink_unreadable_total{reason="undecodable",topic="work"} 1.0' in told
        assert 'headrace_sink_dead_letters_total{reason="undecodable",topic="work"}' not in told
        assert 'headrace_sink_rows_total{table="token_events"}' in told


async def test_a_server_that_is_down_stops_nobody_and_the_sink_stops_at_once_when_asked(
    profile: BrokerProfile, admin: LogAdmin
) -> None:
    settings = SinkSettings(profile, ClickHouseServer("http://127.0.0.1:1"), load_migrations(), max_retry_seconds=60)
    stop, ready = asyncio.Event(), asyncio.Event()
    sink = asyncio.create_task(run(settings, stop=stop, ready=ready.set))
    async with asyncio.timeout(within(20)):
        await ready.wait()
        stop.set()
        await sink


def test_an_outage_of_the_server_is_waited_out_and_every_record_is_there_once_afterwards(
    profile: BrokerProfile, admin: LogAdmin, producer: EventProducer, tenant_name: str, tmp_path: Path
) -> None:
    register(admin, tenant_name)
    server = ClickHouseDouble(tmp_path)
    server.start()
    settings = SinkSettings(
        profile, ClickHouseServer(server.dsn), load_migrations(), group=f"sink-{tenant_name}", batch_rows=150,
        batch_seconds=0.05, max_retry_seconds=0.4,
    )  # fmt: skip
    try:
        with sink_here(settings), HttpAccess.at(server.dsn) as access, traffic(producer, tenant_name) as running:

            def rows() -> int:
                return sum(rows for rows, _, _ in rows_of(access, tenant_name).values())

            eventually(lambda: rows() > 300, "rows arrive", seconds=30)
            server.lose_answers = 2
            eventually(lambda: server.lose_answers == 0, "answers were lost")
            server.refuse = ClickHouseFault(243, "NOT_ENOUGH_SPACE", "Cannot reserve 1.00 MiB, not enough space.")
            before = server.refused
            eventually(lambda: server.refused > before + 2, "inserts are tried again while the disk is full")
            server.stop()
            sent = sum(running.sent.values())
            eventually(lambda: sum(running.sent.values()) > sent + 300, "the log goes on while ClickHouse is down")
            server.refuse = None
            server.start()
            running.stop.set()
            eventually(lambda: rows() >= sum(running.sent.values()), "all rows are there", seconds=30)
            assert rows_of(access, tenant_name) == everything_once(running.sent)
    finally:
        server.close()


def test_partitions_that_move_between_two_sinks_are_taken_over_without_a_gap_or_a_repeat(
    profile: BrokerProfile, admin: LogAdmin, producer: EventProducer, tenant_name: str, tmp_path: Path
) -> None:
    register(admin, tenant_name)
    server = ClickHouseDouble(tmp_path)
    server.start()
    settings = SinkSettings(
        profile, ClickHouseServer(server.dsn), load_migrations(), group=f"sink-{tenant_name}", batch_rows=150,
        batch_seconds=0.05,
    )  # fmt: skip
    try:
        with sink_here(settings), HttpAccess.at(server.dsn) as access, traffic(producer, tenant_name) as running:

            def rows() -> int:
                return sum(rows for rows, _, _ in rows_of(access, tenant_name).values())

            for _ in range(2):
                with sink_here(settings):
                    before = rows()
                    eventually(lambda: rows() > before + 300, "both are at work", seconds=30)  # noqa: B023
            running.stop.set()
            eventually(lambda: rows() >= sum(running.sent.values()), "all rows are there", seconds=30)
            assert rows_of(access, tenant_name) == everything_once(running.sent)
    finally:
        server.close()
