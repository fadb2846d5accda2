"""What can be wrong with bytes, ids and names of the contract. Codes are stable: dead letters and metrics use them."""

from __future__ import annotations


class ContractError(ValueError):
    """Base of all; `code` is stable, the message says what was wrong and with which value."""

    code = "contract"


class UndecodableEvent(ContractError):
    """The bytes are not an encoded event: no header that we know of, truncated, corrupt, too large, bytes left over."""

    code = "undecodable"


class UnknownSchema(ContractError):
    """A well-formed header whose schema nobody knows.

    fingerprint: its CRC-64-AVRO as hex, from a single-object header.
    schema_id: its id in the schema registry, from a Confluent header.
    """

    code = "unknown_schema"

    def __init__(self, message: str, *, fingerprint: str | None = None, schema_id: int | None = None) -> None:
        super().__init__(message)
        self.fingerprint = fingerprint
        self.schema_id = schema_id


class UnknownEventType(UnknownSchema):
    """The schema is known and says that this is an event of another type than ours: a newer release's, say."""

    code = "unknown_event_type"


class SchemaRegistryUnavailable(UnknownSchema):
    """The schema registry could not be asked for the schema behind an id: it may know it, and be asked again later."""

    code = "schema_registry_unavailable"


class UnusableSchema(ContractError):
    """A writer's schema that no event of ours can be read with."""

    code = "unusable_schema"


class UnencodableEvent(ContractError):
    """A field of the event does not fit its schema, or the whole is too large."""

    code = "unencodable"


class InvalidName(ContractError):
    """A tenant, deployment, model or id that the contract does not allow."""

    code = "invalid_name"
