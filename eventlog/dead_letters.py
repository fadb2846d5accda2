"""What happens to a message that can't be read: it is kept, with its origin and the reason, and the reader goes on."""

from __future__ import annotations

from eventlog.producer import EventProducer, OnDelivery
from eventlog.record import Record
from schemas.errors import ContractError, UnknownSchema
from schemas.events import DeadLettered
from schemas.topics import SYSTEM, dead_letters_topic, tenant_of


def dead_letter(record: Record, error: ContractError, *, consumer: str, now_us: int) -> DeadLettered:
    """The event that keeps this record."""
    return DeadLettered(
        at_us=now_us,
        consumer=consumer,
        reason=error.code,
        message=str(error),
        origin_topic=record.topic,
        origin_partition=record.partition,
        origin_offset=record.offset,
        schema_fingerprint=error.fingerprint if isinstance(error, UnknownSchema) else None,
        schema_id=error.schema_id if isinstance(error, UnknownSchema) else None,
        key=record.key,
        value=record.value,
        headers=dict(record.headers),
    )


def send_dead_letter(
    producer: EventProducer,
    record: Record,
    error: ContractError,
    *,
    consumer: str,
    now_us: int,
    on_delivery: OnDelivery | None = None,
) -> None:
    """Write it to the tenant's dead-letter topic, or to the system's when the topic has no tenant.

    Commit the record's own offset only after `on_delivery`. Raises LogBusy.
    """
    letter = dead_letter(record, error, consumer=consumer, now_us=now_us)
    producer.send(
        dead_letters_topic(tenant_of(record.topic) or SYSTEM),
        letter,
        key=f"{record.topic}/{record.partition}/{record.offset}",
        on_delivery=on_delivery,
    )
