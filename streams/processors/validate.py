"""requests.<tenant> -> `validated`, or a refusal into the request's token log. Stateless: scales by partition."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

from eventlog.clock import now_us
from eventlog.record import Record
from eventlog.registry import Registry
from models.errors import ModelError, SchemaJudgeBusyError
from schemas.events import RequestCancelled, RequestRejected, RequestSubmitted, RequestValidated
from schemas.ids import partition_of
from schemas.topics import VALIDATED, requests_topic, tenant_of
from streams.decide import Output, to_token_log
from streams.errors import MisplacedEvent
from streams.metrics import StreamsMetrics
from streams.outbox import Pending, Unsendable
from streams.parameters import Refusal
from streams.schema_checks import SchemaChecks
from streams.settings import StreamsSettings
from streams.stage import Stage
from streams.tokenizers import TokenizerShelf
from streams.validate import decide, refusal_at_sight, rejection

# Tokenizing so much text takes more than a few milliseconds: it is done on a thread, and other tenants go on.
_LONG_PROMPT_CHARS = 16_384
_RETRY_MS = 1_000


class ValidateStage(Stage):
    """Reads every tenant's requests. `registry` is replaced whole when it changes."""

    name = "validate"

    def __init__(
        self, settings: StreamsSettings, metrics: StreamsMetrics, shelf: TokenizerShelf, checks: SchemaChecks
    ) -> None:
        super().__init__(settings, metrics)
        self.registry = Registry()
        self._shelf = shelf
        self._checks = checks

    def follow_tenants(self, registry: Registry) -> None:
        """Take over a newer registry; new tenants' topics are subscribed within a second or two."""
        self.registry = registry
        for tenant in registry.tenants:
            self.follow(requests_topic(tenant))
        self.metrics.tenants.set(len(registry.tenants))

    async def process(self, record: Record, pending: Pending) -> None:
        event = record.event()
        if not isinstance(event, RequestSubmitted | RequestCancelled):
            raise MisplacedEvent(f"{record.topic} holds no {type(event).__name__}")
        if event.tenant != tenant_of(record.topic):
            raise MisplacedEvent(f"an event of tenant {event.tenant!r} is in {record.topic}")
        if partition_of(event.request_id) >= self.settings.topics.tokens:
            raise MisplacedEvent(f"request id {event.request_id} names a token-log partition that does not exist")
        if isinstance(event, RequestCancelled):
            self.count("cancelled")
            await self.outbox.send(pending, Output(VALIDATED.name, event, event.tenant))
            return
        await self._send(event, await self._decide(event), pending)

    async def _decide(self, request: RequestSubmitted) -> RequestValidated | RequestRejected:
        started_us = now_us()
        try:
            objection = await self._schema_objection(request, started_us)
            call = partial(
                decide, request, self.registry, self._shelf.get, now_us=started_us, schema_objection=lambda _: objection
            )
            long = sum(len(message.content) for message in request.messages) > _LONG_PROMPT_CHARS
            decision = await asyncio.to_thread(call) if long else call()
        except SchemaJudgeBusyError as error:
            refusal = Refusal(503, "overloaded_error", "overloaded", f"{error}; try again", "json_schema", _RETRY_MS)
            decision = rejection(request, refusal, now_us())
        except ModelError as error:
            # The server's fault, and this model's alone: its requests end, all others go on.
            refusal = Refusal(503, "overloaded_error", "model_unavailable", f"{error}; try again later", "model")
            decision = rejection(request, refusal, now_us())
        return replace(decision, at_us=now_us())

    async def _schema_objection(self, request: RequestSubmitted, started_us: int) -> str | None:
        """Raises SchemaJudgeBusyError. A request that is refused anyhow costs the judge nothing."""
        if request.json_schema is None or refusal_at_sight(request, now_us=started_us) is not None:
            return None
        return await self._checks.objection(request.json_schema)

    async def _send(
        self, request: RequestSubmitted, decision: RequestValidated | RequestRejected, pending: Pending
    ) -> None:
        if isinstance(decision, RequestValidated):
            try:
                await self.outbox.send(pending, Output(VALIDATED.name, decision, decision.tenant))
            except Unsendable as error:
                message = f"the tokenized prompt does not fit into one record of the log ({error}); shorten the prompt"
                refusal = Refusal(413, "request_too_large", "request_too_large", message, "messages")
                decision = rejection(request, refusal, now_us())
            else:
                self.count("validated")
                return
        self.count("rejected")
        self.metrics.rejected.labels(self.name, decision.code).inc()
        await self.outbox.send(pending, to_token_log(decision))
