"""What can go wrong between us and the log."""

from __future__ import annotations


class EventLogError(Exception):
    """Base of all; `code` is stable, the message says what to do."""

    code = "event_log"


class LogBusy(EventLogError):
    """The producer's bounded buffer is full: the broker is slower than we are. Shed load or wait; nothing was sent."""

    code = "log_busy"


class DeliveryFailed(EventLogError):
    """The broker did not acknowledge the record within the delivery time-out: it may or may not be in the log."""

    code = "delivery_failed"


class RecordRefused(DeliveryFailed):
    """The broker takes this record neither now nor later: it is too large, or there is no such topic, or no right to
    write to it.
    """

    code = "record_refused"


class RecordTooLarge(RecordRefused):
    """It has more bytes than a record may have. Nothing was sent."""

    code = "record_too_large"


class LogUnreachable(EventLogError):
    """No broker answered."""

    code = "log_unreachable"


class AdapterRefused(EventLogError):
    """An adapter names what does not exist, or goes by the name of something else."""

    code = "adapter_refused"


class ModelRefused(EventLogError):
    """A model version would go by the name of something else."""

    code = "model_refused"


class TopicError(EventLogError):
    """A topic could not be created or has another shape than the topic table says."""

    code = "topic"


class SchemaRegistryFailed(EventLogError):
    """The schema registry does not answer, or not as one does."""

    code = "schema_registry_failed"

    def __init__(self, url: str, problem: str) -> None:
        super().__init__(
            f"the schema registry at {url} failed ({problem}): check that it runs and that "
            "HEADRACE_SCHEMA_REGISTRY_URL names it, then run this again; parts that run already go on without it"
        )


class SchemaRefused(EventLogError):
    """The schema registry does not take a schema."""

    code = "schema_refused"

    def __init__(self, subject: str, url: str, reason: str) -> None:
        super().__init__(
            f"the schema registry at {url} refuses the schema of {subject}: {reason}; `headrace schemas check` shows "
            "what breaks against the released ones"
        )


class SchemaIdTaken(EventLogError):
    """The log knows another schema by an id that the registry gives: they can't be told apart."""

    code = "schema_id_taken"

    def __init__(self, schema_id: int, known: str, given: str, url: str) -> None:
        super().__init__(
            f"by the schema id {schema_id} this log knows {known}, and the schema registry at {url} gives it to "
            f"{given}: it is another registry than the one that the log was written with, or one that has lost its "
            "schemas; restore that one (ids included)"
        )
