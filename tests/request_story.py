"""The events of one request as the parts write them, each with the topic that it stands on: for tests of readers.

Times are microseconds since the request was received, added to RECEIVED_US.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from schemas.events import (
    Event,
    GenerationFinished,
    GenerationStarted,
    Message,
    QuotaSettled,
    RequestAdmitted,
    RequestRejected,
    RequestRouted,
    RequestSubmitted,
    RequestValidated,
    ResponseDelivered,
    TokenLogprobs,
    TokensGenerated,
)
from schemas.ids import new_request_id
from schemas.topics import VALIDATED, lifecycle_topic, requests_topic, tokens_topic, work_topic

RECEIVED_US = 1_796_000_000_000_000
DEPLOYMENT = "chat-v1"


@dataclass(frozen=True, slots=True)
class Story:
    """One request's facts."""

    number: int = 1
    tenant: str = "acme"

    @property
    def request_id(self) -> str:
        return new_request_id(now_ms=RECEIVED_US // 1000, partition=0, entropy=self.number)

    def submitted(self, at: int = 1_000) -> tuple[str, Event]:
        return requests_topic(self.tenant), RequestSubmitted(
            request_id=self.request_id, tenant=self.tenant, at_us=RECEIVED_US + at, received_at_us=RECEIVED_US,
            source="gateway", endpoint="responses", model="chat", messages=(Message(role="user", content="Hi"),),
        )  # fmt: skip

    def validated(self, at: int = 3_000, started: int = 2_000) -> tuple[str, Event]:
        return VALIDATED.name, RequestValidated(
            request_id=self.request_id, tenant=self.tenant, at_us=RECEIVED_US + at,
            started_at_us=RECEIVED_US + started, received_at_us=RECEIVED_US, submitted_at_us=RECEIVED_US + 1_000,
            model="chat", tokenized_for="chat@v1", prompt_token_ids=(5, 6, 7), max_output_tokens=16, temperature=0.0,
            top_p=1.0, top_k=0, seed=1, stop=(), endpoint="responses",
        )  # fmt: skip

    def rejected(self, at: int = 1_700, stage: str = "validate", code: str = "model_not_found") -> tuple[str, Event]:
        return tokens_topic(self.tenant), RequestRejected(
            request_id=self.request_id, tenant=self.tenant, at_us=RECEIVED_US + at, stage=stage, status=429,
            error_type="rate_limit_error", code=code, message="Too many requests.", retry_after_ms=2_500,
        )  # fmt: skip

    def admitted(self, at: int = 5_000) -> tuple[str, Event]:
        return tokens_topic(self.tenant), RequestAdmitted(
            request_id=self.request_id, tenant=self.tenant, at_us=RECEIVED_US + at, reserved_tokens=19,
            limit_requests=60, remaining_requests=59, reset_requests_ms=1_000, limit_tokens=10_000,
            remaining_tokens=9_981, reset_tokens_ms=1_000,
        )  # fmt: skip

    def routed(self, at: int = 5_500, adapter: str | None = None) -> tuple[str, Event]:
        return work_topic(DEPLOYMENT, self.tenant), RequestRouted(
            request_id=self.request_id, tenant=self.tenant, at_us=RECEIVED_US + at, admitted_at_us=RECEIVED_US + 5_000,
            model="chat", model_version="chat@v1", deployment=DEPLOYMENT, reason="alias chat is chat@v1",
            prompt_token_ids=(5, 6, 7), max_output_tokens=16, temperature=0.0, top_p=1.0, top_k=0, seed=1, stop=(),
            adapter=adapter,
        )  # fmt: skip

    def started(self, at: int = 9_000, attempt: int = 1, pulled: int = 8_000) -> tuple[str, Event]:
        return tokens_topic(self.tenant), GenerationStarted(
            request_id=self.request_id, tenant=self.tenant, attempt=attempt, at_us=RECEIVED_US + at,
            pulled_at_us=RECEIVED_US + pulled, worker=f"worker-{attempt}", deployment=DEPLOYMENT,
            model_version="chat@v1", prompt_tokens=3, resumed_output_tokens=0 if attempt == 1 else 1,
        )  # fmt: skip

    def tokens(
        self,
        at: int,
        index: int,
        text: str = " word",
        attempt: int = 1,
        logprobs: tuple[TokenLogprobs, ...] = (),
    ) -> tuple[str, Event]:
        return tokens_topic(self.tenant), TokensGenerated(
            request_id=self.request_id, tenant=self.tenant, attempt=attempt, at_us=RECEIVED_US + at, index=index,
            token_ids=(index,), text_offset_chars=index * len(text), text=text, logprobs=logprobs,
        )  # fmt: skip

    def finished(
        self,
        at: int = 39_000,
        attempt: int = 1,
        reason: str = "stop",
        first_token: int | None = 10_000,
        output: int = 4,
    ) -> tuple[str, Event]:
        return tokens_topic(self.tenant), GenerationFinished(
            request_id=self.request_id, tenant=self.tenant, attempt=attempt, at_us=RECEIVED_US + at,
            worker=f"worker-{attempt}", deployment=DEPLOYMENT, model_version="chat@v1", finish_reason=reason,
            prompt_tokens=3, output_tokens=output,
            first_token_at_us=None if first_token is None else RECEIVED_US + first_token,
        )  # fmt: skip

    def settled(self, at: int = 40_000) -> tuple[str, Event]:
        return lifecycle_topic(self.tenant), QuotaSettled(
            request_id=self.request_id, tenant=self.tenant, at_us=RECEIVED_US + at, reserved_tokens=19,
            prompt_tokens=3, output_tokens=4, released_tokens=12,
        )  # fmt: skip

    def delivered(self, at: int = 40_100, resumed_after: int = -1) -> tuple[str, Event]:
        return lifecycle_topic(self.tenant), ResponseDelivered(
            request_id=self.request_id, tenant=self.tenant, at_us=RECEIVED_US + at, gateway="gateway-1",
            transport="sse", events=9, resumed_after=resumed_after,
        )  # fmt: skip

    def whole(self) -> list[tuple[str, Event]]:
        """From the client's request to the last byte, all going well."""
        ended = self.finished()
        return [
            self.submitted(), self.validated(), self.admitted(), self.routed(), self.started(),
            *(self.tokens(10_000 + index * 9_000, index) for index in range(4)),
            ended, copy_of(ended), self.settled(), self.delivered(),
        ]  # fmt: skip


def copy_of(ended: tuple[str, Event]) -> tuple[str, Event]:
    """What a worker writes for quota to settle."""
    return VALIDATED.name, replace(ended[1])
