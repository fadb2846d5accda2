"""The quota table as the decide stage uses it: entries by request, each tenant's ledger found from its newest entry.

It works on any mapping of bytes; in production that is Faust's table, rebuilt from the changelog.
"""

from __future__ import annotations

from collections import deque
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from operator import attrgetter

from streams.entry import Entry, decode_entry, encode_entry
from streams.quota import Ledger


@dataclass(frozen=True, slots=True)
class Change:
    """One record for the changelog; value None deletes the key."""

    key: bytes
    value: bytes | None


@dataclass(slots=True)
class _Tenant:
    ledger: Ledger
    ledger_offset: int
    newest_key: bytes  # of the entry that holds the ledger
    by_age: deque[tuple[int, bytes]] = field(default_factory=deque)  # (decided, event time; key), oldest first


class QuotaBook:
    """Entries and ledgers. Decisions are forgotten by age and number; what is open, or holds a ledger, never is."""

    def __init__(self, table: MutableMapping[bytes, bytes], *, kept_us: int, kept: int) -> None:
        self._table = table
        self._kept_us = kept_us
        self._kept = kept
        self._tenants: dict[str, _Tenant] = {}

    def rebuild(self) -> None:
        """Find ledgers and ages again from the table alone: after a recovery, and when partitions came or went."""
        self._tenants.clear()
        entries = [decode_entry(value) for value in self._table.values()]
        for entry in sorted(entries, key=attrgetter("decided_at_offset")):
            self._note(entry, is_new=True)

    def entry(self, request_id: str) -> Entry | None:
        """What was decided about this request, if that is still known."""
        found = self._table.get(request_id.encode())
        return None if found is None else decode_entry(found)

    def ledger(self, tenant: str) -> Ledger | None:
        """The tenant's ledger; None before its first request."""
        found = self._tenants.get(tenant)
        return None if found is None else found.ledger

    def store(self, entry: Entry) -> list[Change]:
        """Keep the entry, and forget what is old; the changes in the order in which the changelog must have them."""
        key, value = entry.request_id.encode(), encode_entry(entry)
        is_new = key not in self._table
        self._table[key] = value
        tenant = self._note(entry, is_new=is_new)
        return [Change(key, value), *self._forget_old(tenant)]

    def _note(self, entry: Entry, *, is_new: bool) -> _Tenant:
        key = entry.request_id.encode()
        tenant = self._tenants.get(entry.tenant)
        if tenant is None:
            tenant = self._tenants[entry.tenant] = _Tenant(entry.ledger, entry.ledger_offset, key)
        elif entry.ledger_offset >= tenant.ledger_offset:
            tenant.ledger, tenant.ledger_offset, tenant.newest_key = entry.ledger, entry.ledger_offset, key
        if is_new:
            tenant.by_age.append((entry.ledger.as_of_us, key))
        return tenant

    def _forget_old(self, tenant: _Tenant) -> list[Change]:
        """At most two a time: as fast as entries come in, and never a long pause."""
        forgotten = []
        for _ in range(min(2, len(tenant.by_age))):
            since_us, key = tenant.by_age[0]
            if len(tenant.by_age) <= self._kept and tenant.ledger.as_of_us - since_us <= self._kept_us:
                break
            tenant.by_age.popleft()
            if key == tenant.newest_key or decode_entry(self._table[key]).is_open:
                tenant.by_age.append((tenant.ledger.as_of_us, key))
                continue
            del self._table[key]
            forgotten.append(Change(key, None))
        return forgotten
