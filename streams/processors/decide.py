"""`validated` -> quota and route: admits and sends work, refuses, settles, forwards cancels. State: one Faust table."""

from __future__ import annotations

from eventlog.clock import now_us
from eventlog.record import Record
from eventlog.registry import Registry
from schemas.events import (
    GenerationFailed,
    GenerationFinished,
    RequestCancelled,
    RequestRejected,
    RequestValidated,
)
from schemas.ids import partition_of
from schemas.topics import VALIDATED
from streams.book import QuotaBook
from streams.decide import Verdict, decide_admission, decide_cancel, decide_settlement
from streams.errors import MisplacedEvent
from streams.metrics import StreamsMetrics
from streams.outbox import Pending
from streams.settings import StreamsSettings
from streams.stage import Stage

_DecideEvent = RequestValidated | RequestCancelled | GenerationFinished | GenerationFailed


class DecideStage(Stage):
    """Reads `validated`, in which each tenant's events are in one order. `registry` is replaced whole."""

    name = "decide"

    def __init__(self, settings: StreamsSettings, metrics: StreamsMetrics) -> None:
        super().__init__(settings, metrics)
        self.registry = Registry()
        self._table = self.app.quota_table()
        self._changelog = self._table.changelog_topic.get_topic_name()
        self._book = QuotaBook(self._table, kept_us=settings.decisions_kept_us, kept=settings.decisions_kept)
        self._table.on_recover(self._recovered)
        self.follow(VALIDATED.name)

    async def process(self, record: Record, pending: Pending) -> None:
        event = record.event()
        if not isinstance(event, _DecideEvent):
            raise MisplacedEvent(f"{record.topic} holds no {type(event).__name__}")
        if partition_of(event.request_id) >= self.settings.topics.tokens:
            raise MisplacedEvent(f"request id {event.request_id} names a token-log partition that does not exist")
        verdict = self._decide(event, record.offset)
        # The change goes first: what is said is then known to whoever recovers the table.
        if verdict.entry is not None:
            for change in self._book.store(verdict.entry):
                await self.outbox.send_change(pending, change, topic=self._changelog, partition=record.partition)
        for output in verdict.outputs:
            await self.outbox.send(pending, output)
        self._count(event, verdict)

    def _decide(self, event: _DecideEvent, offset: int) -> Verdict:
        entry = self._book.entry(event.request_id)
        if isinstance(event, RequestCancelled):
            return decide_cancel(event, entry=entry)
        ledger = self._book.ledger(event.tenant)
        tenant = self.registry.tenants.get(event.tenant)
        if isinstance(event, RequestValidated):
            return decide_admission(
                event, offset, entry=entry, ledger=ledger, tenant=tenant, catalog=self.registry, now_us=now_us()
            )
        return decide_settlement(event, offset, entry=entry, ledger=ledger, tenant=tenant, now_us=now_us())

    def _count(self, event: _DecideEvent, verdict: Verdict) -> None:
        if not verdict.outputs:
            self.count("ignored")
        elif isinstance(event, RequestCancelled):
            self.count("cancelled")
        elif not isinstance(event, RequestValidated):
            self.count("settled")
        elif isinstance(said := verdict.outputs[0].event, RequestRejected):
            self.count("rejected")
            self.metrics.rejected.labels(self.name, said.code).inc()
        else:
            self.count("admitted")

    async def _recovered(self) -> None:
        self._book.rebuild()
