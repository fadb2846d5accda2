"""What comes back for a submission: tokens, and one end."""

from __future__ import annotations

from dataclasses import dataclass

from headrace_client.backoff import Backoff
from headrace_client.contract.events import GenerationFailed, GenerationFinished, RequestRejected, TokenLogprobs
from headrace_client.errors import AnswerFailed, DeliveryFailed, RequestRefused
from headrace_client.submission import Submission

_AGAIN = frozenset({429, 503})


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next tokens, with the text that they complete: all that came since the last one was read.

    index: place of the first token in the output. text_offset_chars: place of the text, in code points.
    text: empty when the tokens end within a character, or in what may become a stop string.
    logprobs: one for each of token_ids, if the request asked for them (`top_logprobs`); else empty.
    """

    submission: Submission
    text: str
    token_ids: tuple[int, ...]
    index: int
    text_offset_chars: int
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer is whole, or was ended by a limit, a cancel or its deadline: see `finish_reason`.

    text: all of it. event: stop, length, cancelled or timeout, token counts, the version that answered.
    logprobs: one for each token of the output, if the request asked for them; else empty.
    """

    submission: Submission
    text: str
    event: GenerationFinished
    logprobs: tuple[TokenLogprobs, ...] = ()

    @property
    def finish_reason(self) -> str:
        """stop, length, cancelled or timeout."""
        return self.event.finish_reason


@dataclass(frozen=True, slots=True)
class Failed:
    """The answer will never be whole. text: what there is of it."""

    submission: Submission
    text: str
    event: GenerationFailed

    def error(self) -> AnswerFailed:
        event = self.event
        return AnswerFailed(event.message, status=event.status, type=event.error_type, code=event.code)


@dataclass(frozen=True, slots=True)
class Rejected:
    """The request was refused: by validation, by quota, or for want of room."""

    submission: Submission
    event: RequestRejected

    @property
    def retryable(self) -> bool:
        """The same request can succeed later: over quota (429) or no room (503), and the server says when."""
        return self.event.status in _AGAIN and self.event.retry_after_ms is not None

    def retry_in_s(self, policy: Backoff | None, attempt: int, draw: float) -> float | None:
        """When to submit it again, by this policy: never before the server says. None: not at all.

        attempt: from 0. draw: a random number in [0, 1).
        """
        if policy is None or not self.retryable:
            return None
        return policy.delay_s(attempt, draw, at_least_s=(self.event.retry_after_ms or 0) / 1000)

    def error(self) -> RequestRefused:
        event = self.event
        return RequestRefused(
            event.message, status=event.status, type=event.error_type, code=event.code, param=event.param,
            retry_after_ms=event.retry_after_ms,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class NotDelivered:
    """The broker has not acknowledged the request in time; it may run for nobody."""

    submission: Submission
    failure: DeliveryFailed

    def error(self) -> DeliveryFailed:
        return self.failure


Ending = Finished | Failed | Rejected | NotDelivered
Result = TextDelta | Ending


def answer_of(ending: Ending) -> Finished:
    """The whole answer. Raises RequestRefused, AnswerFailed and DeliveryFailed for every other end."""
    if not isinstance(ending, Finished):
        raise ending.error()
    if ending.finish_reason == "timeout":
        raise AnswerFailed(
            f"the deadline passed after {ending.event.output_tokens} output tokens; allow more time",
            status=504, type="timeout_error", code="deadline_exceeded",
        )  # fmt: skip
    return ending
