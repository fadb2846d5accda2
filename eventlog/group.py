"""A member of a consumer group: how it comes, and how it goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from eventlog.profile import BrokerProfile

OnPartitions = Callable[[Consumer, list[TopicPartition]], None]


class GroupMember:
    """Owns a consumer that subscribes. All of it is called by one thread.

    On Apache Kafka it says that it leaves, and others get its partitions at once; on the embedded broker they get them
    when its session has expired (`BrokerProfile.leaves_silently`).
    """

    def __init__(self, profile: BrokerProfile, settings: dict[str, Any]) -> None:
        """settings: the consumer's, as from `profile.consumer`."""
        self._silently = profile.leaves_silently
        self._consumer = Consumer(settings)
        self._on_revoke: OnPartitions | None = None

    @property
    def consumer(self) -> Consumer:
        """Nobody may keep it beyond `leave`."""
        return self._consumer

    def subscribe(
        self, topics: Sequence[str], *, on_assign: OnPartitions, on_revoke: OnPartitions, on_lost: OnPartitions
    ) -> None:
        """Topics instead of those before. Called back, within `poll` and `leave`, on the thread of the call."""
        self._on_revoke = on_revoke
        self._consumer.subscribe(list(topics), on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)

    def leave(self) -> None:
        """Revoke what is assigned, which is the last time to commit, and go. There is no consumer afterwards."""
        try:
            if not self._silently:
                self._consumer.close()
            elif self._on_revoke is not None and (assigned := self._consumer.assignment()):
                self._on_revoke(self._consumer, assigned)
        finally:
            # The last reference: confluent-kafka destroys a consumer that was not closed, without a word to the group.
            del self._consumer
