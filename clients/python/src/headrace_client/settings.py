"""How a producer is set up."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace_client.backoff import Backoff

_CLIENT_ID = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """What Producer and AsyncProducer are made with; units in the names.

    source: this service's name: the field `source` of its requests, and `ce_source` of its records.
    kafka: librdkafka settings for both clients (security.protocol, sasl.*, ssl.*); kafka_producer, kafka_consumer:
        for one of them. They override ours, except for what the promises lean on.
    schema_registry_url: write Confluent framing, and look foreign schema ids up there (extra `registry`);
        schema_registry: further settings of confluent-kafka's SchemaRegistryClient.
    follow_results: False: nobody here will read results, so nothing is kept of what was submitted.
    most_in_flight: submissions that the broker has not acknowledged.
    most_open: submissions whose end has not been read.
    most_unread: characters and tokens of one tenant that may wait for a reader; past it, reading its log pauses.
    block_s: how long `submit` waits for room before it raises Backpressure. busy: how it tries meanwhile.
    delivery_timeout_s: what the broker has not acknowledged by then has failed.
    """

    bootstrap_servers: str
    source: str
    kafka: Mapping[str, Any] = field(default_factory=dict)
    kafka_producer: Mapping[str, Any] = field(default_factory=dict)
    kafka_consumer: Mapping[str, Any] = field(default_factory=dict)
    schema_registry_url: str | None = None
    schema_registry: Mapping[str, Any] = field(default_factory=dict)
    follow_results: bool = True
    most_in_flight: int = 10_000
    most_open: int = 100_000
    most_unread: int = 16_000_000
    block_s: float = 60.0
    busy: Backoff = field(default=Backoff(first_s=0.005, most_s=0.25, attempts=None))
    delivery_timeout_s: float = 30.0

    def producer(self) -> dict[str, Any]:
        """Idempotent, acknowledged by all in-sync replicas, a bounded buffer."""
        return {
            "linger.ms": 1,
            "queue.buffering.max.kbytes": 64 * 1024,
            "topic.metadata.propagation.max.ms": 5_000,
            **self._client(),
            **self.kafka_producer,
            "delivery.timeout.ms": round(self.delivery_timeout_s * 1000),
            "enable.idempotence": True,
            "acks": "all",
        }

    def consumer(self) -> dict[str, Any]:
        """Only assigns; no group, no commits."""
        return {
            "queued.max.messages.kbytes": 8 * 1024,
            "fetch.error.backoff.ms": 100,
            **self._client(),
            **self.kafka_consumer,
            "group.id": f"{self._client_id}-assigns-only",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
        }

    def _client(self) -> dict[str, Any]:
        return {
            "client.id": self._client_id,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1_000,
            "log_level": 3,
            **self.kafka,
            "bootstrap.servers": self.bootstrap_servers,
        }

    @property
    def _client_id(self) -> str:
        return _CLIENT_ID.sub("-", self.source)[:64] or "headrace-client"
