"""The topic table: every topic, what its key is, who writes it, how long it is kept, which events it holds.

Per-tenant topics carry the tenant behind the last dot. `Topics` knows how many partitions each kind has; the rest of
the system takes names from here and never puts one together itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from . import events as e
from .bounds import MAX_EVENT_BYTES
from .names import check_deployment, check_tenant

DAY_MS = 24 * 60 * 60 * 1000
MAX_RECORD_BYTES = 1_000_000
"""Most bytes of a record of ours, key and headers included: what Apache Kafka's topics take unless they say more."""
MAX_LETTER_BYTES = MAX_EVENT_BYTES + 64 * 1024
"""The same for dead letters: the record that one wraps may be as large as its own topic takes."""
SYSTEM = "_system"  # stands in for the tenant of dead letters whose tenant is unknown


@dataclass(frozen=True, slots=True)
class TopicKind:
    """One row of the table.

    name: the topic, or its first part when `per` is not empty.
    per: what follows the name: ("tenant",), ("deployment", "tenant") or ().
    retention_ms: how long records are kept; None: compacted, the newest of each key is kept.
    partitions: which setting gives the number of partitions; "one" is always 1.
    max_batch_bytes: the largest batch of records that the topic takes; None: what the broker says.
    """

    name: str
    per: tuple[str, ...]
    key: str
    written_by: str
    retention_ms: int | None
    partitions: str
    events: tuple[type[e.Event], ...]
    max_batch_bytes: int | None = None


REQUESTS = TopicKind(
    "requests", ("tenant",), "request_id", "gateway, another service", 7 * DAY_MS, "requests",
    (e.RequestSubmitted, e.RequestCancelled),
)  # fmt: skip
VALIDATED = TopicKind(
    # One total order for each tenant, so that quota needs no lock: what asks for quota and what gives it back.
    "validated", (), "tenant", "streams (validate), GPU consumers (copies of what ends a request)", DAY_MS, "validated",
    (e.RequestValidated, e.RequestCancelled, e.GenerationFinished, e.GenerationFailed),
)  # fmt: skip
WORK = TopicKind(
    "work",
    ("deployment", "tenant"),
    "request_id",
    "streams (route)",
    DAY_MS,
    "work",
    (e.RequestRouted, e.RequestCancelled),
)
TOKENS = TopicKind(
    # The token log: what clients, resume and replay read. The partition is in the request id.
    "tokens", ("tenant",), "request_id", "GPU consumers, streams", 7 * DAY_MS, "tokens",
    (e.RequestAdmitted, e.RequestRejected, e.GenerationStarted, e.TokensGenerated, e.GenerationFinished,
     e.GenerationFailed),
)  # fmt: skip
LIFECYCLE = TopicKind(
    "lifecycle", ("tenant",), "request_id", "streams, gateway", 7 * DAY_MS, "lifecycle",
    (e.QuotaSettled, e.ResponseDelivered),
)  # fmt: skip
CONTROL_TENANTS = TopicKind(
    "control.tenants", (), "tenant, or tenant/key_id", "command line, admin API", None, "one",
    (e.TenantRegistered, e.ApiKeyIssued, e.ApiKeyRevoked),
)  # fmt: skip
CONTROL_MODELS = TopicKind(
    "control.models", (), "model_version", "command line, admin API", None, "one", (e.ModelRegistered,)
)
CONTROL_ADAPTERS = TopicKind(
    "control.adapters", (), "adapter", "command line, admin API", None, "one", (e.AdapterRegistered,)
)
CONTROL_ROUTES = TopicKind(
    "control.routes", (), '"routes"', "command line, admin API", None, "one", (e.RouteTableChanged,)
)
CONTROL_SCHEMAS = TopicKind(
    "control.schemas",
    (),
    "subject/fingerprint, or subject/schema_id",
    "command line (deploy)",
    None,
    "one",
    (e.SchemaPublished, e.SchemaRegistered),
)
TELEMETRY = TopicKind(
    "telemetry", (), "worker or gateway", "GPU consumers, gateway", DAY_MS, "one",
    (e.WorkerReported, e.ThroughputMeasured, e.GatewayReported),
)  # fmt: skip
DEAD_LETTERS = TopicKind(
    "dead-letters", ("tenant",), "origin_topic/origin_partition/origin_offset",
    "any consumer (DeadLettered); command line (DeadLetterRequeued)", 30 * DAY_MS, "one",
    (e.DeadLettered, e.DeadLetterRequeued), max_batch_bytes=MAX_LETTER_BYTES,
)  # fmt: skip

TOPIC_KINDS: tuple[TopicKind, ...] = (
    REQUESTS, VALIDATED, WORK, TOKENS, LIFECYCLE, CONTROL_TENANTS, CONTROL_MODELS, CONTROL_ADAPTERS, CONTROL_ROUTES,
    CONTROL_SCHEMAS, TELEMETRY, DEAD_LETTERS,
)  # fmt: skip
CONTROL_KINDS = (CONTROL_TENANTS, CONTROL_MODELS, CONTROL_ADAPTERS, CONTROL_ROUTES, CONTROL_SCHEMAS)


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """One topic to create."""

    name: str
    partitions: int
    retention_ms: int | None
    max_batch_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Topics:
    """Names and partition counts. `tokens` must never shrink: the partition is in every request id."""

    requests: int = 4
    validated: int = 4
    work: int = 4
    tokens: int = 4
    lifecycle: int = 1

    def shared(self) -> list[TopicSpec]:
        """Topics that exist once."""
        return [self._spec(kind, kind.name) for kind in TOPIC_KINDS if not kind.per] + [
            self._spec(DEAD_LETTERS, dead_letters_topic(SYSTEM))
        ]

    def of_tenant(self, tenant: str, deployments: frozenset[str] | set[str]) -> list[TopicSpec]:
        """Topics that a tenant needs, with one work topic for each deployment."""
        check_tenant(tenant)
        plain = [self._spec(kind, f"{kind.name}.{tenant}") for kind in TOPIC_KINDS if kind.per == ("tenant",)]
        return plain + [self._spec(WORK, work_topic(deployment, tenant)) for deployment in sorted(deployments)]

    def _spec(self, kind: TopicKind, name: str) -> TopicSpec:
        count = 1 if kind.partitions == "one" else int(getattr(self, kind.partitions))
        return TopicSpec(name, count, kind.retention_ms, kind.max_batch_bytes)


def requests_topic(tenant: str) -> str:
    return f"requests.{tenant}"


def work_topic(deployment: str, tenant: str) -> str:
    return f"work.{check_deployment(deployment)}.{tenant}"


def tokens_topic(tenant: str) -> str:
    return f"tokens.{tenant}"


def lifecycle_topic(tenant: str) -> str:
    return f"lifecycle.{tenant}"


def dead_letters_topic(tenant: str) -> str:
    return f"dead-letters.{tenant}"


def tenant_of(topic: str) -> str | None:
    """The tenant whose topic this is; None for shared topics."""
    kind = kind_of(topic)
    if kind is None or not kind.per:
        return None
    tenant = topic.rpartition(".")[2]
    return None if tenant == SYSTEM else tenant


def kind_of(topic: str) -> TopicKind | None:
    """The row of the table that this topic belongs to; None for a topic that is not ours."""
    return _BY_NAME.get(topic) or _BY_NAME.get(topic.partition(".")[0])


_BY_NAME = {kind.name: kind for kind in TOPIC_KINDS}
