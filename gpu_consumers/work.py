"""What the intake hands to the engine loop, and how a record of a work topic is understood."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eventlog.record import Record
from gpu_consumers.partition import HeldPartition
from gpu_consumers.prior_attempts import PriorAttempts
from schemas.errors import ContractError
from schemas.events import RequestCancelled, RequestRouted
from schemas.ids import partition_of
from schemas.topics import tenant_of


class UnexpectedRecord(ContractError):
    """A readable event that has no business in this topic."""

    code = "unexpected_record"


@dataclass(slots=True, eq=False)
class Work:
    """One work order in this worker's hands.

    traceparent: the order's, for all that follows from it.
    prior: what earlier workers left; None if nobody can have begun with it.
    cancelled: set by the intake's thread, at any time.
    """

    order: RequestRouted
    partition: HeldPartition
    offset: int
    written_at_ms: int
    pulled_at_us: int
    traceparent: bytes | None = None
    prior: PriorAttempts | None = None
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Cancel:
    """The client no longer wants it. `work.cancelled` is set already, for work that has not arrived yet."""

    work: Work


@dataclass(frozen=True, slots=True)
class Drop:
    """Its partition is no longer held, or its log can't be written: forget it without a word."""

    work: Work


@dataclass(frozen=True, slots=True)
class Prepared:
    """The JSON schema of this work was compiled. refusal: why no answer can be held to it; None if one can."""

    work: Work
    refusal: str | None


@dataclass(frozen=True, slots=True)
class Weights:
    """Fairness weights by tenant; one that is not among them has 1."""

    by_tenant: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Leave:
    """Take nothing more, finish what is short, and end: until_s at the latest, on the monotonic clock."""

    until_s: float


@dataclass(frozen=True, slots=True)
class Wake:
    """Nothing but a reason to look up."""


Message = Work | Cancel | Drop | Prepared | Weights | Leave | Wake


def understand(record: Record, *, deployment: str, token_partitions: int) -> RequestRouted | RequestCancelled:
    """The order or the cancel in a record of a work topic.

    Raises ContractError for what must go to the dead letters: bytes that are no event, another kind of event, an
    order for another tenant or deployment, a request id that names no partition of the token log.
    """
    event = record.event()
    if not isinstance(event, RequestRouted | RequestCancelled):
        raise UnexpectedRecord(f"a {type(event).__name__} in {record.topic}, which holds work orders and cancels")
    if event.tenant != tenant_of(record.topic):
        raise UnexpectedRecord(f"{event.request_id} is of tenant {event.tenant!r}, in the topic {record.topic}")
    partition = partition_of(event.request_id)
    if partition >= token_partitions:
        raise UnexpectedRecord(f"{event.request_id} names partition {partition} of {token_partitions} of its token log")
    if isinstance(event, RequestRouted) and event.deployment != deployment:
        raise UnexpectedRecord(f"{event.request_id} is for deployment {event.deployment!r}, this is {deployment!r}")
    return event
