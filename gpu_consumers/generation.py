"""One request in this worker's hands, from the work order to the terminal event: every event that it causes. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpu_consumers.output import FinishReason, Output, OutputLimits
from gpu_consumers.plan import Logprobs, SamplingParams
from gpu_consumers.prior_attempts import PriorAttempts
from gpu_consumers.sequence import Sequence
from models.tokenizer import Tokenizer
from schemas.events import (
    AdapterRegistered,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    RequestRouted,
    TokenLogprob,
    TokenLogprobs,
    TokensGenerated,
)

MAX_LOGPROBS: Final = 256
"""Tokens with log probabilities in one event: with 20 others each they stay far below what a record may have."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request can't be answered, as its client sees it."""

    status: int
    error_type: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Model:
    """What turns tokens into text, and which of them end an answer."""

    tokenizer: Tokenizer
    eos_token_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class _Token:
    """text: what it completed. logprobs: where they were asked for."""

    token_id: int
    text: str
    logprobs: TokenLogprobs | None


class Generation:
    """The answer to one work order.

    With prior attempts it goes on behind what they left in the log: their tokens are its prefix, its attempt is one
    higher than theirs, and its text continues theirs exactly.
    """

    def __init__(
        self,
        order: RequestRouted,
        model: Model,
        *,
        worker: str,
        pulled_at_us: int,
        prior: PriorAttempts | None = None,
        traceparent: bytes | None = None,
    ) -> None:
        prior = prior or PriorAttempts()
        self.order = order
        self.traceparent = traceparent
        self._cached_prompt_tokens = 0
        self.attempt = prior.log.attempt + 1
        self._worker = worker
        self._pulled_at_us = pulled_at_us
        self._first_token_at_us = prior.log.first_token_at_us
        self._resumed_token_ids = tuple(prior.log.token_ids)
        limits = OutputLimits(order.max_output_tokens, model.eos_token_ids, order.stop)
        self._output, text = Output.resumed(model.tokenizer, limits, self._resumed_token_ids)
        self._tokenizer = model.tokenizer
        # What is not in the log yet: tokens with the text that each completed, and before them text of tokens that are
        # in the log.
        self._unwritten: list[_Token] = []
        self._unwritten_text = text[prior.log.text_chars :]
        self._unwritten_at_us = pulled_at_us
        self._told = 0  # of the unwritten tokens, by the event that `unwritten` gave

    @property
    def request_id(self) -> str:
        return self.order.request_id

    @property
    def tenant(self) -> str:
        return self.order.tenant

    @property
    def finish_reason(self) -> FinishReason | None:
        """Set when the answer is whole; at once, if the log held all of it but its end."""
        return self._output.finish_reason

    @property
    def output_tokens(self) -> int:
        """Over all attempts."""
        return self._output.token_count

    @property
    def first_token_at_us(self) -> int | None:
        return self._first_token_at_us

    @property
    def sequence(self) -> Sequence:
        """What the scheduler is given."""
        order = self.order
        return Sequence(
            request_id=order.request_id,
            tenant=order.tenant,
            prefix_token_ids=order.prompt_token_ids + self._resumed_token_ids,
            resumed_tokens=len(self._resumed_token_ids),
            max_tokens=len(order.prompt_token_ids) + order.max_output_tokens,
            sampling=_sampling(order),
            deadline_at_us=order.deadline_at_us,
            priority=order.priority,
            adapter=order.adapter,
            adapter_registration=_registration(order),
        )

    def add_token(self, token_id: int, now_us: int, logprobs: Logprobs | None = None) -> None:
        """The engine made the next token; see `finish_reason` for whether it was the last.

        logprobs: where the order asks for them, and the engine gave them.
        """
        if self._first_token_at_us is None:
            self._first_token_at_us = now_us
        told = None if logprobs is None else self._logprobs(token_id, logprobs)
        self._unwritten.append(_Token(token_id, self._output.push(token_id), told))
        self._unwritten_at_us = now_us

    def started(self, now_us: int, *, cached_tokens: int = 0) -> GenerationStarted:
        """It has a slot, and its first prefill chunk is about to run. cached_tokens: of its prefix, not to be run."""
        self._cached_prompt_tokens = min(cached_tokens, len(self.order.prompt_token_ids))
        return GenerationStarted(
            request_id=self.request_id,
            tenant=self.tenant,
            attempt=self.attempt,
            at_us=now_us,
            pulled_at_us=self._pulled_at_us,
            worker=self._worker,
            deployment=self.order.deployment,
            model_version=self.order.model_version,
            prompt_tokens=len(self.order.prompt_token_ids),
            resumed_output_tokens=len(self._resumed_token_ids),
            cached_prompt_tokens=self._cached_prompt_tokens,
        )

    def unwritten(self) -> TokensGenerated | None:
        """Tokens and text that no event has told yet, or the first of them; `written` says that one has."""
        if not (self._unwritten or self._unwritten_text):
            return None
        has_logprobs = any(token.logprobs is not None for token in self._unwritten)
        told = self._unwritten[:MAX_LOGPROBS] if has_logprobs else self._unwritten
        self._told = len(told)
        text_chars = len(self._unwritten_text) + sum(len(token.text) for token in self._unwritten)
        logprobs = tuple(token.logprobs for token in told if token.logprobs is not None)
        return TokensGenerated(
            request_id=self.request_id,
            tenant=self.tenant,
            attempt=self.attempt,
            at_us=self._unwritten_at_us,
            index=self._output.token_count - len(self._unwritten),
            token_ids=tuple(token.token_id for token in told),
            text_offset_chars=self._output.text_chars - text_chars,
            text="".join([self._unwritten_text, *(token.text for token in told)]),
            logprobs=logprobs if len(logprobs) == len(told) else (),
        )

    def written(self) -> None:
        """What `unwritten` gave is written."""
        del self._unwritten[: self._told]
        self._unwritten_text = ""

    def _logprobs(self, token_id: int, logprobs: Logprobs) -> TokenLogprobs:
        utf8 = self._tokenizer.token_bytes
        top = tuple(TokenLogprob(token_id=other, utf8=utf8(other), logprob=logprob) for other, logprob in logprobs.top)
        return TokenLogprobs(logprob=logprobs.chosen, utf8=utf8(token_id), top=top)

    def finished(self, reason: FinishReason, now_us: int) -> GenerationFinished:
        """The answer ends here. Text that is held back stays so unless the answer is whole: another attempt that
        did not see the cancel might have gone on differently."""
        return GenerationFinished(
            request_id=self.request_id,
            tenant=self.tenant,
            attempt=self.attempt,
            at_us=now_us,
            worker=self._worker,
            deployment=self.order.deployment,
            model_version=self.order.model_version,
            finish_reason=reason,
            prompt_tokens=len(self.order.prompt_token_ids),
            output_tokens=self._output.token_count,
            first_token_at_us=self._first_token_at_us,
            cached_prompt_tokens=self._cached_prompt_tokens,
        )

    def failed(self, failure: Failure, now_us: int) -> GenerationFailed:
        return GenerationFailed(
            request_id=self.request_id,
            tenant=self.tenant,
            attempt=self.attempt,
            at_us=now_us,
            worker=self._worker,
            deployment=self.order.deployment,
            model_version=self.order.model_version,
            status=failure.status,
            error_type=failure.error_type,
            code=failure.code,
            message=failure.message,
            prompt_tokens=len(self.order.prompt_token_ids),
            output_tokens=self._output.token_count,
            first_token_at_us=self._first_token_at_us,
        )


def _registration(order: RequestRouted) -> AdapterRegistered | None:
    """Of the order's adapter, as of when it was routed; None for one of a release that did not say, and for none."""
    if order.adapter is None or order.adapter_registered_at_us is None or order.adapter_location is None:
        return None
    return AdapterRegistered(
        adapter=order.adapter,
        at_us=order.adapter_registered_at_us,
        model_version=order.model_version,
        location=order.adapter_location,
    )


def _sampling(order: RequestRouted) -> SamplingParams:
    return SamplingParams(
        temperature=order.temperature,
        top_p=order.top_p,
        top_k=order.top_k,
        seed=order.seed,
        min_p=order.min_p,
        repetition_penalty=order.repetition_penalty,
        presence_penalty=order.presence_penalty,
        frequency_penalty=order.frequency_penalty,
        logit_bias=tuple((bias.token_id, bias.bias) for bias in order.logit_bias),
        top_logprobs=order.top_logprobs,
        json_schema=order.json_schema,
    )
