"""Names for logs, so that an offset means one record for ever."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from eventlog.profile import BrokerProfile


class LogIds:
    """Asks the broker. A topic that was deleted and made again is another log, with offsets from 0, so on Apache Kafka
    the topic's id is part of the name. The embedded broker has another cluster id at each start, and that is enough.
    """

    def __init__(self, profile: BrokerProfile, cluster_id: str) -> None:
        self._cluster = profile.log_id or cluster_id
        self._admin = AdminClient(profile.client("headrace-sink-admin")) if profile.kind == "kafka" else None

    def of(self, topics: Iterable[str], timeout_s: float = 10.0) -> dict[str, str]:
        """The log id of each topic. Raises KafkaException."""
        names = sorted(set(topics))
        if self._admin is None or not names:
            return dict.fromkeys(names, self._cluster)
        described = self._admin.describe_topics(TopicCollection(names), request_timeout=timeout_s)
        return {name: f"{self._cluster}/{future.result(timeout_s).topic_id}" for name, future in described.items()}
