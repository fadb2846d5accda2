"""Members come and go at any moment of a rebalance, and whoever is left gets every partition.

A story is mostly waiting, so all of them are told side by side, each in a group of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from eventlog.group import GroupMember
from eventlog.profile import BrokerProfile
from tests.timing import eventually, within

PARTITIONS = 4
COMMITTED = 7
# In session timeouts: the embedded broker answers JoinGroup after half of one, Apache Kafka as soon as all are there.
MOMENTS = (0.05, 0.2, 0.6)


class Member:
    """Polled by a thread of its own until it leaves or dies."""

    def __init__(self, profile: BrokerProfile, group: str) -> None:
        self.holds = 0
        self._profile = profile
        self._group = group
        self._stop = threading.Event()
        self._says_so = True
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def leave(self) -> None:
        self._stop.set()
        self._thread.join(within(20))
        assert not self._thread.is_alive()

    def die(self) -> None:
        """As if its process was killed."""
        self._says_so = False
        self.leave()

    def _run(self) -> None:
        settings = self._profile.consumer(self._group, group_id=self._group)
        member = GroupMember(self._profile, {**settings, "partition.assignment.strategy": "cooperative-sticky"})
        member.subscribe([self._group], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        while not self._stop.is_set():
            member.consumer.poll(0.02)
        if self._says_so:
            member.leave()

    def _assigned(self, _consumer: Consumer, given: list[TopicPartition]) -> None:
        self.holds += len(given)

    def _revoked(self, consumer: Consumer, taken: list[TopicPartition]) -> None:
        with suppress(KafkaException):  # the group may be on to its next generation already
            offsets = [TopicPartition(at.topic, at.partition, COMMITTED) for at in taken]
            consumer.commit(offsets=offsets, asynchronous=False)
        self._lost(consumer, taken)

    def _lost(self, _consumer: Consumer, taken: list[TopicPartition]) -> None:
        self.holds -= len(taken)


class Group:
    """Of one topic of its own."""

    def __init__(self, profile: BrokerProfile, moment: float) -> None:
        self.profile = profile
        self.name = f"group-{uuid4().hex[:8]}"
        self._moment_s = moment * profile.session_timeout_ms / 1000
        self._members: list[Member] = []
        admin = AdminClient(profile.client("test"))
        admin.create_topics([NewTopic(self.name, PARTITIONS, 1)])[self.name].result(within(10))

    def join(self) -> Member:
        self._members.append(Member(self.profile, self.name))
        return self._members[-1]

    def pause(self) -> None:
        threading.Event().wait(self._moment_s)

    def until_held_by(self, *members: Member) -> None:
        """Until these have shared all partitions among them."""
        shares = sorted(len(range(n, PARTITIONS, len(members))) for n in range(len(members)))
        eventually(
            lambda: sorted(member.holds for member in members) == shares,
            f"{len(members)} members share {PARTITIONS} partitions",
            40.0,
        )

    def close(self) -> None:
        for member in self._members:
            member.die()


def meet(group: Group) -> tuple[Member, Member]:
    """The leader, which holds all partitions, and a newcomer, for whom the group rebalances."""
    leader = group.join()
    group.until_held_by(leader)
    newcomer = group.join()
    group.pause()
    return leader, newcomer


def the_leader_leaves(group: Group) -> None:
    leader, newcomer = meet(group)
    leader.leave()
    group.until_held_by(newcomer)


def the_leader_dies(group: Group) -> None:
    leader, newcomer = meet(group)
    leader.die()
    group.until_held_by(newcomer)


def the_newcomer_leaves(group: Group) -> None:
    leader, newcomer = meet(group)
    newcomer.leave()
    group.until_held_by(leader)


def the_newcomer_dies(group: Group) -> None:
    leader, newcomer = meet(group)
    newcomer.die()
    group.until_held_by(leader)


def the_only_member_leaves_before_it_has_anything(group: Group) -> None:
    first = group.join()
    group.pause()
    first.leave()
    group.until_held_by(group.join())


def the_leader_and_a_follower_leave_and_another_comes(group: Group) -> None:
    first, second = group.join(), group.join()
    group.until_held_by(first, second)
    third = group.join()
    group.pause()
    first.leave()
    second.leave()
    group.until_held_by(third, group.join())


STORIES: tuple[Callable[[Group], None], ...] = (
    the_leader_leaves,
    the_leader_dies,
    the_newcomer_leaves,
    the_newcomer_dies,
    the_only_member_leaves_before_it_has_anything,
    the_leader_and_a_follower_leave_and_another_comes,
)


def told(story: Callable[[Group], None], profile: BrokerProfile, moment: float) -> None:
    group = Group(profile, moment)
    try:
        story(group)
    finally:
        group.close()


@pytest.fixture(scope="module")
def stories(profile: BrokerProfile) -> Iterator[dict[tuple[str, float], Future[None]]]:
    with ThreadPoolExecutor(len(STORIES) * len(MOMENTS)) as pool:
        yield {
            (story.__name__, moment): pool.submit(told, story, profile, moment)
            for story in STORIES
            for moment in MOMENTS
        }


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("story", [story.__name__ for story in STORIES])
def test_whoever_is_left_holds_every_partition_when(
    story: str, moment: float, stories: dict[tuple[str, float], Future[None]]
) -> None:
    stories[story, moment].result(within(60))


def test_the_last_that_a_member_does_is_to_commit(profile: BrokerProfile) -> None:
    group = Group(profile, 0.0)
    member = group.join()
    group.until_held_by(member)
    member.leave()
    assert member.holds == 0
    asks = Consumer(profile.consumer("test", group_id=group.name))
    found = asks.committed([TopicPartition(group.name, n) for n in range(PARTITIONS)], timeout=within(10))
    asks.close()
    assert [at.offset for at in found] == [COMMITTED] * PARTITIONS
