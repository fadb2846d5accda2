"""The quota table: ledgers found from entries, and what is forgotten when."""

from __future__ import annotations

from dataclasses import replace

from streams.book import Change, QuotaBook
from streams.decide import decide_admission, decide_settlement
from streams.entry import Entry, encode_entry
from tests.unit.streams.samples import NOW_US, SECOND_US, finished, registry, request_id, tenant, validated


class Shell:
    """Feeds events to the cores as the decide stage does, on a plain dictionary."""

    def __init__(self, *, kept_us: int = 10**15, kept: int = 100) -> None:
        self.table: dict[bytes, bytes] = {}
        self.changelog: list[Change] = []
        self.book = QuotaBook(self.table, kept_us=kept_us, kept=kept)
        self.offset = 0

    def admit(self, number: int, *, at_us: int = NOW_US) -> Entry:
        event = validated(number, at_us=at_us)
        verdict = decide_admission(
            event,
            self.offset,
            entry=self.book.entry(event.request_id),
            ledger=self.book.ledger("acme"),
            tenant=tenant(max_concurrent_requests=1000, requests_per_minute=10_000, tokens_per_minute=10**6),
            catalog=registry(),
            now_us=at_us,
        )
        assert verdict.entry is not None
        return self._store(verdict.entry)

    def settle(self, number: int, *, at_us: int = NOW_US) -> Entry:
        verdict = decide_settlement(
            finished(number, at_us=at_us),
            self.offset,
            entry=self.book.entry(request_id(number)),
            ledger=self.book.ledger("acme"),
            tenant=tenant(),
            now_us=at_us,
        )
        assert verdict.entry is not None
        return self._store(verdict.entry)

    def known(self) -> set[int]:
        return {n for n in range(100) if self.book.entry(request_id(n)) is not None}

    def _store(self, entry: Entry) -> Entry:
        self.changelog += self.book.store(entry)
        self.offset += 1
        return entry


def test_the_ledger_is_the_one_of_the_newest_entry() -> None:
    shell = Shell()
    shell.admit(0)
    shell.admit(1)

    settled = shell.settle(0)

    assert shell.book.ledger("acme") == settled.ledger
    assert shell.book.ledger("nobody") is None


def test_a_rebuilt_book_knows_what_the_old_one_knew() -> None:
    shell = Shell()
    for number in range(5):
        shell.admit(number)
    shell.settle(2)

    rebuilt = QuotaBook(dict(reversed(shell.table.items())), kept_us=1, kept=1)
    rebuilt.rebuild()

    assert rebuilt.ledger("acme") == shell.book.ledger("acme")
    assert [rebuilt.entry(request_id(n)) for n in range(6)] == [shell.book.entry(request_id(n)) for n in range(6)]


def test_the_changelog_alone_gives_the_table() -> None:
    shell = Shell(kept=2)
    for number in range(6):
        shell.admit(number)
        shell.settle(number)

    replayed: dict[bytes, bytes | None] = {}
    for change in shell.changelog:
        replayed[change.key] = change.value

    assert {key: value for key, value in replayed.items() if value is not None} == shell.table
    assert None in replayed.values()


def test_past_the_number_kept_the_oldest_settled_ones_are_forgotten() -> None:
    shell = Shell(kept=2)
    for number in range(6):
        shell.admit(number)
        shell.settle(number)

    assert shell.known() == {4, 5}


def test_past_the_age_kept_settled_ones_are_forgotten() -> None:
    shell = Shell(kept_us=10 * SECOND_US)
    for number in range(3):
        shell.admit(number)
        shell.settle(number)

    shell.admit(3, at_us=NOW_US + 11 * SECOND_US)
    shell.admit(4, at_us=NOW_US + 11 * SECOND_US)

    assert shell.known() == {3, 4}


def test_what_is_open_is_never_forgotten() -> None:
    shell = Shell(kept=1)
    for number in range(6):
        shell.admit(number)

    assert shell.known() == set(range(6))


def test_the_entry_that_holds_the_ledger_is_never_forgotten() -> None:
    shell = Shell(kept=0)
    shell.admit(0)
    newest = shell.settle(0)

    assert shell.table == {request_id(0).encode(): encode_entry(newest)}


def test_storing_an_entry_again_does_not_age_it_twice() -> None:
    shell = Shell(kept=1)
    first = shell.admit(0)
    shell.book.store(replace(first))
    shell.settle(0)
    shell.admit(1)
    shell.settle(1)

    assert shell.known() == {1}
