"""Reading one request's token log: which events count.

Several workers may have written about one request (a crash, a rebalance, a worker that did not know it was dead), and
a log may hold a record twice. This fold is the one place that decides what counts, so that the gateway, a worker that
takes over and every test see the same answer: it is a function of the log's order alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from .events import (
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    RequestAdmitted,
    RequestRejected,
    TerminalEvent,
    TokenLogEvent,
    TokenLogprobs,
    TokensGenerated,
)


@dataclass(slots=True)
class TokenLog:
    """State of one request's log. `apply` the events in log order.

    attempt: highest attempt seen; 0 before the first worker.
    token_ids, text: output so far, each token once.
    logprobs: of the tokens from the first one on, as far as every event told them.
    terminal: the event that ended the request, or None.
    """

    attempt: int = 0
    admitted: RequestAdmitted | None = None
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    text_parts: list[str] = field(default_factory=list)
    text_chars: int = 0
    first_token_at_us: int | None = None
    terminal: TerminalEvent | None = None

    @property
    def text(self) -> str:
        return "".join(self.text_parts)

    def apply(self, event: TokenLogEvent) -> TokenLogEvent | None:
        """The event as it counts: itself, the unseen rest of it, or None when it must be dropped.

        Dropped: all that follows the terminal event, all of a lower attempt, tokens and text already seen, tokens
        that would leave a gap (their writer knew of tokens that this log lost: only its successor can be right),
        a second admission.
        """
        if self.terminal is not None:
            return None
        if isinstance(event, RequestAdmitted):
            if self.admitted is not None or self.attempt:
                return None
            self.admitted = event
            return event
        if isinstance(event, RequestRejected):
            if self.attempt or self.admitted:  # a late duplicate that another validator refused
                return None
            self.terminal = event
            return event
        if event.attempt < self.attempt:
            return None
        if isinstance(event, GenerationStarted):
            if event.attempt == self.attempt:
                return None
            self.attempt = event.attempt
            return event
        self.attempt = event.attempt
        if isinstance(event, TokensGenerated):
            return self._append(event)
        if isinstance(event, GenerationFinished | GenerationFailed):
            self.terminal = event
        return event

    def _append(self, event: TokensGenerated) -> TokensGenerated | None:
        seen = len(self.token_ids) - event.index
        seen_chars = self.text_chars - event.text_offset_chars
        if seen < 0 or seen_chars < 0:
            return None
        token_ids, text = event.token_ids[seen:], event.text[seen_chars:]
        if not token_ids and not text:
            return None
        logprobs = event.logprobs[seen:]
        if len(logprobs) == len(token_ids) and len(self.logprobs) == len(self.token_ids):
            self.logprobs.extend(logprobs)
        if token_ids and self.first_token_at_us is None:
            self.first_token_at_us = event.at_us
        self.token_ids.extend(token_ids)
        self.text_parts.append(text)
        self.text_chars += len(text)
        if seen == 0 and seen_chars == 0:
            return event
        return replace(
            event, index=event.index + seen, token_ids=token_ids, text_offset_chars=self.text_chars - len(text),
            text=text, logprobs=logprobs,
        )  # fmt: skip
