"""What is true of every history of a quota: conservation, limits, idempotence, and that the table is enough."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from schemas.events import GenerationFinished, RequestAdmitted, RequestValidated
from streams.book import QuotaBook
from streams.decide import Verdict, decide_admission, decide_settlement, limits_of
from streams.entry import Entry
from streams.quota import SCALE, Ledger, Limits, full_ledger, refill, reserve, settle
from tests.unit.streams.samples import NOW_US, finished, registry, request_id, tenant, validated

MINUTE_US = 60_000_000
TENANT = tenant(requests_per_minute=30, tokens_per_minute=300, max_concurrent_requests=5)
LIMITS = limits_of(TENANT)
small_limits = st.builds(Limits, st.integers(1, 100), st.integers(1, 5000), st.integers(1, 20))


@dataclass(frozen=True)
class Step:
    """Some time passes, then a request for so many tokens comes; it uses a share of them and ends at once, or stays."""

    after_us: int
    tokens: int
    used_percent: int | None


steps = st.lists(
    st.builds(Step, st.integers(0, 2 * MINUTE_US), st.integers(1, 2000), st.none() | st.integers(0, 100)), max_size=40
)


@given(small_limits, steps)
def test_no_window_admits_more_than_a_full_bucket_and_its_refill(limits: Limits, history: list[Step]) -> None:
    ledger, now_us = full_ledger(limits, now_us=NOW_US), NOW_US
    admitted: list[tuple[int, int]] = []
    for step in history:
        now_us += step.after_us
        ledger, refused = reserve(ledger, limits, tokens=step.tokens, now_us=now_us)
        if refused is None:
            used = step.tokens if step.used_percent is None else step.tokens * step.used_percent // 100
            admitted.append((now_us, used))
            if step.used_percent is not None:
                ledger = settle(ledger, limits, reserved=step.tokens, used=used, now_us=now_us)

    for start in range(len(admitted)):
        for end in range(start, len(admitted)):
            window = admitted[start : end + 1]
            span_us = window[-1][0] - window[0][0]
            assert len(window) * SCALE <= limits.requests_per_minute * (SCALE + span_us)
            assert sum(used for _, used in window) * SCALE <= limits.tokens_per_minute * (SCALE + span_us)


@given(small_limits, steps)
def test_who_waits_as_long_as_told_is_not_refused_for_the_same_reason(limits: Limits, history: list[Step]) -> None:
    ledger, now_us = full_ledger(limits, now_us=NOW_US), NOW_US
    for step in history:
        now_us += step.after_us
        ledger, refused = reserve(ledger, limits, tokens=step.tokens, now_us=now_us)
        if refused is not None and refused.code in ("request_rate_exceeded", "token_rate_exceeded"):
            assert refused.retry_after_ms is not None
            now_us += refused.retry_after_ms * 1000
            ledger, again = reserve(ledger, limits, tokens=step.tokens, now_us=now_us)
            assert again is None or again.code != refused.code


@given(small_limits, st.lists(st.integers(0, MINUTE_US), min_size=1, max_size=20))
def test_refilling_in_many_steps_is_refilling_in_one(limits: Limits, waits: list[int]) -> None:
    empty = Ledger(NOW_US, 0, 0)
    stepped, now_us = empty, NOW_US
    for wait in waits:
        now_us += wait
        stepped = refill(stepped, limits, now_us=now_us)

    assert stepped == refill(empty, limits, now_us=now_us)


class QuotaMachine(RuleBasedStateMachine):
    """Events of one tenant in the order of their topic, with duplicates, re-reads and restarts in between.

    Beside the book under test runs the simplest model: which requests are open, with what reserved.
    """

    @initialize()
    def start(self) -> None:
        self.table: dict[bytes, bytes] = {}
        self.changelog: dict[bytes, bytes | None] = {}
        self.book = QuotaBook(self.table, kept_us=10**15, kept=10**6)
        self.offset = 0
        self.now_us = NOW_US
        self.asked: list[RequestValidated] = []
        self.open: dict[str, int] = {}
        self.ended: list[GenerationFinished] = []
        self.last: tuple[int, RequestValidated | GenerationFinished, Verdict] | None = None

    @rule(wait_us=st.integers(0, MINUTE_US // 2))
    def time_passes(self, wait_us: int) -> None:
        self.now_us += wait_us

    @rule(prompt=st.integers(1, 200), output=st.integers(1, 200))
    def a_request_comes(self, prompt: int, output: int) -> None:
        event = validated(len(self.asked), prompt=prompt, output=output, at_us=self.now_us)
        self.asked.append(event)
        verdict = self._feed(event)
        assert verdict.entry is not None
        if isinstance(verdict.entry.decision, RequestAdmitted):
            self.open[event.request_id] = prompt + output

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def a_request_comes_twice(self, data: st.DataObject) -> None:
        before = dict(self.table)

        assert self._feed(data.draw(st.sampled_from(self.asked))) == Verdict()
        assert self.table == before

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def a_request_ends(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sampled_from(sorted(self.open)))
        used = data.draw(st.integers(0, self.open.pop(chosen)))
        number = next(n for n, event in enumerate(self.asked) if event.request_id == chosen)
        event = finished(number, prompt=used, output=0, at_us=self.now_us)
        self.ended.append(event)
        assert self._feed(event).entry is not None

    @precondition(lambda self: self.ended)
    @rule(data=st.data())
    def an_end_comes_twice(self, data: st.DataObject) -> None:
        assert self._feed(data.draw(st.sampled_from(self.ended))) == Verdict()

    @precondition(lambda self: self.last is not None)
    @rule()
    def a_restart_reads_the_changelog_and_the_last_record_again(self) -> None:
        self.table = {key: value for key, value in self.changelog.items() if value is not None}
        self.book = QuotaBook(self.table, kept_us=10**15, kept=10**6)
        self.book.rebuild()
        assert self.last is not None
        offset, event, said = self.last

        again = self._decide(event, offset)

        assert again.entry is None
        assert again.outputs == said.outputs

    @invariant()
    def what_is_reserved_is_what_is_open(self) -> None:
        ledger = self.book.ledger("acme")
        if ledger is None:
            assert not self.open
            return
        assert ledger.open_requests == len(self.open) <= LIMITS.max_concurrent_requests
        assert ledger.reserved_tokens == sum(self.open.values())

    @invariant()
    def no_bucket_is_overdrawn_or_overfull(self) -> None:
        ledger = self.book.ledger("acme")
        if ledger is not None:
            assert 0 <= ledger.requests <= LIMITS.requests_per_minute * SCALE
            assert 0 <= ledger.tokens <= LIMITS.tokens_per_minute * SCALE

    @invariant()
    def every_request_is_known(self) -> None:
        entries = [self.book.entry(event.request_id) for event in self.asked]
        assert [entry is not None and entry.is_open for entry in entries] == [
            event.request_id in self.open for event in self.asked
        ]

    def _feed(self, event: RequestValidated | GenerationFinished) -> Verdict:
        verdict = self._decide(event, self.offset)
        if verdict.entry is not None:
            for change in self.book.store(verdict.entry):
                self.changelog[change.key] = change.value
        if verdict.outputs:
            self.last = (self.offset, event, verdict)
        self.offset += 1
        return verdict

    def _decide(self, event: RequestValidated | GenerationFinished, offset: int) -> Verdict:
        entry, ledger = self.book.entry(event.request_id), self.book.ledger("acme")
        if isinstance(event, RequestValidated):
            return decide_admission(
                event, offset, entry=entry, ledger=ledger, tenant=TENANT, catalog=registry(), now_us=self.now_us
            )
        return decide_settlement(event, offset, entry=entry, ledger=ledger, tenant=TENANT, now_us=self.now_us)


QuotaMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestQuotaMachine = QuotaMachine.TestCase


@given(st.lists(st.tuples(st.integers(1, 100), st.booleans()), max_size=30))
def test_folding_all_of_it_is_folding_on_from_the_serialised_state(events: list[tuple[int, bool]]) -> None:
    straight, resumed = _Folder(), _Folder()
    for number, (tokens, ends) in enumerate(events):
        straight.feed(number, tokens, ends)
        resumed.feed(number, tokens, ends)
        resumed.reload()

    assert straight.book.ledger("acme") == resumed.book.ledger("acme")
    assert straight.table == resumed.table


class _Folder:
    def __init__(self) -> None:
        self.table: dict[bytes, bytes] = {}
        self.offset = 0
        self.reload()

    def reload(self) -> None:
        self.book = QuotaBook(self.table, kept_us=10**15, kept=10**6)
        self.book.rebuild()

    def feed(self, number: int, tokens: int, ends: bool) -> None:
        at_us = NOW_US + number * 1_000_000
        event = validated(number, prompt=tokens, output=1, at_us=at_us)
        self._store(
            decide_admission(
                event,
                self.offset,
                entry=None,
                ledger=self.book.ledger("acme"),
                tenant=TENANT,
                catalog=registry(),
                now_us=at_us,
            )
        )
        if ends:
            self._store(
                decide_settlement(
                    finished(number, prompt=tokens, output=0, at_us=at_us),
                    self.offset,
                    entry=self._entry(number),
                    ledger=self.book.ledger("acme"),
                    tenant=TENANT,
                    now_us=at_us,
                )
            )

    def _entry(self, number: int) -> Entry | None:
        return self.book.entry(request_id(number))

    def _store(self, verdict: Verdict) -> None:
        self.offset += 1
        if verdict.entry is not None:
            self.book.store(verdict.entry)
