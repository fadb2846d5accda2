"""What the quota table keeps of one request, and its form in the table's changelog.

The entry holds the decision and, with it, the tenant's whole ledger as the decision left it. So each event changes the
table by exactly one record, and one record is written whole or not at all: no crash can leave a decision without its
reservation or a reservation without its decision. The tenant's ledger is the one in its newest entry.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from schemas.events import RequestAdmitted, RequestRejected
from streams.quota import Ledger


@dataclass(frozen=True, slots=True)
class Placement:
    """Where an admitted request was sent, and why.

    adapter: the one that answers; None: the model itself. adapter_registered_at_us, adapter_location: of its newest
    registration then, whatever comes after.
    """

    model_version: str
    deployment: str
    reason: str
    adapter: str | None = None
    adapter_registered_at_us: int | None = None
    adapter_location: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One decided request.

    decision: what its client was told.
    placement: None when it was refused.
    decided_at_offset: of the record on `validated` that was decided.
    settled_at_offset: of the record that settled it; None while it is open (or when it was refused).
    settled_at_us: when that was said.
    ledger: the tenant's, after the newer of the two.
    """

    decision: RequestAdmitted | RequestRejected
    placement: Placement | None
    decided_at_offset: int
    ledger: Ledger
    settled_at_offset: int | None = None
    settled_at_us: int | None = None

    @property
    def tenant(self) -> str:
        return self.decision.tenant

    @property
    def request_id(self) -> str:
        return self.decision.request_id

    @property
    def ledger_offset(self) -> int:
        """Of the record after which `ledger` stands."""
        return self.decided_at_offset if self.settled_at_offset is None else self.settled_at_offset

    @property
    def is_open(self) -> bool:
        return self.placement is not None and self.settled_at_offset is None


def encode_entry(entry: Entry) -> bytes:
    """JSON: the changelog is internal, and an operator may want to read it.

    While a new release is rolled out, processors of the one before may get a partition back and read what newer ones
    wrote: a key that they don't know is nothing to them, a list that is longer than they know stops them. So what is
    new gets a key of its own.
    """
    admitted = isinstance(entry.decision, RequestAdmitted)
    placement, at = entry.placement, entry.ledger
    return json.dumps(
        {
            "admitted" if admitted else "rejected": entry.decision.__dict__,
            "placement": placement and (placement.model_version, placement.deployment, placement.reason),
            "adapter": placement
            and (placement.adapter, placement.adapter_registered_at_us, placement.adapter_location),
            "decided": entry.decided_at_offset,
            "settled": (entry.settled_at_offset, entry.settled_at_us),
            "ledger": (at.as_of_us, at.requests, at.tokens, at.open_requests, at.reserved_tokens),
        },
        separators=(",", ":"),
    ).encode()


def decode_entry(data: bytes) -> Entry:
    """The entry in these bytes, equal to the one that was encoded."""
    found: dict[str, Any] = json.loads(data)
    placement = found["placement"]
    return Entry(
        decision=RequestAdmitted(**found["admitted"]) if "admitted" in found else RequestRejected(**found["rejected"]),
        placement=None if placement is None else Placement(*placement, *found.get("adapter", ())),
        decided_at_offset=found["decided"],
        settled_at_offset=found["settled"][0],
        settled_at_us=found["settled"][1],
        ledger=Ledger(*found["ledger"]),
    )
