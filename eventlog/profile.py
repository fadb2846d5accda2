"""How to talk to the broker at hand: client settings, and what differs between Apache Kafka and the embedded broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from schemas.codec import SINGLE_OBJECT, Codec
from schemas.topics import MAX_LETTER_BYTES

BrokerKind = Literal["kafka", "embedded"]


@dataclass(frozen=True, slots=True)
class BrokerProfile:
    """One broker (cluster) and how its clients are set up.

    kind: `embedded` is the Tansu broker: it polls idle fetches at half the maximum wait, so its consumers ask with a
        short one; it keeps its log in memory; its ListOffsets(latest) and offsets-for-times are not to be trusted.
    log_id: names this log's offsets: the cluster id on Apache Kafka (asked when empty), one id for each start of the
        embedded broker, whose offsets begin again at 0 every time.
    security: further librdkafka settings (security.protocol, sasl.*, ssl.*).
    codec: how events are written here, and what is known of schemas that others write with. One for each process.
    """

    bootstrap_servers: str
    kind: BrokerKind = "kafka"
    log_id: str = ""
    security: Mapping[str, str] = field(default_factory=dict)
    codec: Codec = field(default=SINGLE_OBJECT, compare=False, repr=False)

    def client(self, client_id: str) -> dict[str, Any]:
        """What every client shares."""
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "client.id": client_id,
            "broker.address.family": "v4",
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1000,
            "log_level": 3,
            **self.security,
        }

    def producer(self, client_id: str, *, linger_ms: float = 0, delivery_timeout_ms: int = 30_000) -> dict[str, Any]:
        """Idempotent, acknowledged by all in-sync replicas; a bounded buffer of 64 MB.

        delivery_timeout_ms: a record that is not acknowledged by then has failed, and those behind it may yet arrive;
            0: never, for records of which none may be missing between others.
        """
        return {
            **self.client(client_id),
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": linger_ms,
            "compression.type": "none" if self.kind == "embedded" else "lz4",
            "queue.buffering.max.kbytes": 64 * 1024,
            # Room for dead letters; other records are held to less by EventProducer. Batches stay below 1 MB.
            "message.max.bytes": MAX_LETTER_BYTES,
            "delivery.timeout.ms": delivery_timeout_ms,
            # How long a topic may be unknown before a record for it fails: ours exist before anyone writes to them.
            "topic.metadata.propagation.max.ms": 5_000,
        }

    def consumer(self, client_id: str, *, group_id: str | None = None) -> dict[str, Any]:
        """Offsets are committed by us, after the work; without a group the consumer only assigns."""
        settings: dict[str, Any] = {
            **self.client(client_id),
            "group.id": group_id or f"{client_id}-assigns-only",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "fetch.error.backoff.ms": 100,
            "topic.metadata.refresh.interval.ms": 30_000,
            "queued.max.messages.kbytes": 32 * 1024,
            "fetch.wait.max.ms": self.fetch_wait_ms,
        }
        if group_id:
            settings |= {
                "session.timeout.ms": self.session_timeout_ms,
                "heartbeat.interval.ms": self.heartbeat_interval_ms,
            }
        return settings

    @property
    def fetch_wait_ms(self) -> int:
        return 5 if self.kind == "embedded" else 500

    @property
    def session_timeout_ms(self) -> int:
        # The embedded broker lets a member join after half of it.
        return 2_000 if self.kind == "embedded" else 6_000

    @property
    def heartbeat_interval_ms(self) -> int:
        return 300 if self.kind == "embedded" else 500

    @property
    def leaves_silently(self) -> bool:
        """Whether members of a group go without a word, and are missed when their session has expired.

        The embedded broker does not forget the leader of a group that says that it leaves while the group rebalances:
        it waits for that leader's assignment ever after, and nobody in the group, nor who comes later, gets a partition
        again. A leader that falls silent is forgotten.
        """
        return self.kind == "embedded"
