"""What happens to a message that can't be read: it is kept, with its origin and the reason, and the reader goes on.

Who owns a record through a group writes the letter. Who reads by assignment, as many do with the same record, only
counts it.
"""

from __future__ import annotations

from eventlog.errors import RecordRefused
from eventlog.producer import EventProducer, OnDelivery
from eventlog.record import Record
from schemas.bounds import MAX_ITEMS
from schemas.codec import schema_id_in
from schemas.errors import ContractError, UnencodableEvent, UnknownSchema
from schemas.events import DeadLettered
from schemas.topics import MAX_LETTER_BYTES, SYSTEM, dead_letters_topic, tenant_of

_MAX_MESSAGE_CHARS = 1_000  # a hostile event may have its reader say a megabyte


def dead_letter(record: Record, error: ContractError, *, consumer: str, now_us: int) -> DeadLettered:
    """The event that keeps this record."""
    message = str(error)
    return DeadLettered(
        at_us=now_us,
        consumer=consumer,
        reason=error.code,
        message=message if len(message) <= _MAX_MESSAGE_CHARS else message[:_MAX_MESSAGE_CHARS] + "…",
        origin_topic=record.topic,
        origin_partition=record.partition,
        origin_offset=record.offset,
        schema_fingerprint=error.fingerprint if isinstance(error, UnknownSchema) else None,
        schema_id=error.schema_id if isinstance(error, UnknownSchema) else schema_id_in(record.value),
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

    Commit the record's own offset only after `on_delivery`. Raises LogBusy and DeliveryFailed. RecordRefused, raised or
    delivered, says that this letter can't be written at all: count it and go on, the record itself stays in its topic.
    """
    letter = dead_letter(record, error, consumer=consumer, now_us=now_us)
    if len(letter.headers) > MAX_ITEMS:
        raise RecordRefused(f"a record with {len(letter.headers)} headers can't be a dead letter")
    try:
        producer.send(
            dead_letters_topic(tenant_of(record.topic) or SYSTEM),
            letter,
            key=record.place,
            on_delivery=on_delivery,
            max_bytes=MAX_LETTER_BYTES,
        )
    except UnencodableEvent as too_large:
        raise RecordRefused(str(too_large)) from too_large
