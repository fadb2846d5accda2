"""What can be wrong with bytes, ids and names of the contract. Codes are stable: dead letters and metrics use them."""

from __future__ import annotations


class ContractError(ValueError):
    """Base of all; `code` is stable, the message says what was wrong and with which value."""

    code = "contract"


class UndecodableEvent(ContractError):
    """The bytes are not a single-object encoded event: wrong marker, truncated, or left-over bytes."""

    code = "undecodable"


class UnknownSchema(ContractError):
    """A well-formed header whose fingerprint no known schema has. `fingerprint` is its hex."""

    code = "unknown_schema"

    def __init__(self, fingerprint: str) -> None:
        super().__init__(f"no known event has the schema fingerprint {fingerprint}")
        self.fingerprint = fingerprint


class UnencodableEvent(ContractError):
    """A field of the event does not fit its schema."""

    code = "unencodable"


class InvalidName(ContractError):
    """A tenant, deployment, model or id that the contract does not allow."""

    code = "invalid_name"
