"""What has come back for the requests that are followed: a fold of their token logs, without a thread or a broker.

No event is kept. Of each request there is its text so far and how far the caller has read it; what he reads next is
made from the two. A caller who falls behind gets longer pieces, and past `most_unread` the tenant is `full`: whoever
reads the log for it pauses until it is `drained`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from headrace_client.contract.events import (
    GenerationFailed,
    GenerationFinished,
    RequestRejected,
    TerminalEvent,
    TokenLogEvent,
)
from headrace_client.contract.token_log import TokenLog
from headrace_client.errors import DeliveryFailed
from headrace_client.results import Ending, Failed, Finished, NotDelivered, Rejected, Result, TextDelta
from headrace_client.submission import Submission


@dataclass(eq=False, slots=True)
class _Followed:
    """One request, from its submission until its end has been read.

    read_tokens, read_parts, read_chars: what `take` has given out. claimed: someone waits for the whole answer, so
    `take` leaves it alone. queued: in its tenant's queue.
    """

    submission: Submission
    log: TokenLog = field(default_factory=TokenLog)
    read_tokens: int = 0
    read_parts: int = 0
    read_chars: int = 0
    claimed: bool = False
    queued: bool = False
    ending: Ending | None = None

    @property
    def unread(self) -> int:
        """Characters, tokens and entries of log probabilities that wait for a reader."""
        log = self.log
        waiting = log.text_chars - self.read_chars + len(log.token_ids) - self.read_tokens
        if not log.logprobs:
            return waiting
        return waiting + max(0, len(log.logprobs) - self.read_tokens) * (1 + len(log.logprobs[0].top))

    def take(self) -> Result | None:
        """All tokens that are new, as one piece; behind them the end, if it has come."""
        log = self.log
        if not self.unread:
            return self.ending
        text = "".join(log.text_parts[self.read_parts :])
        tokens = tuple(log.token_ids[self.read_tokens :])
        logprobs = tuple(log.logprobs[self.read_tokens :])
        delta = TextDelta(self.submission, text, tokens, self.read_tokens, self.read_chars, logprobs)
        self.read_tokens, self.read_parts = len(log.token_ids), len(log.text_parts)
        self.read_chars = log.text_chars
        return delta


@dataclass(eq=False, slots=True)
class _TenantInbox:
    ready: deque[_Followed] = field(default_factory=deque)
    open: int = 0  # followed, claimed ones too
    claimed: int = 0
    unread: int = 0  # of those that are not claimed


class Inbox:
    """The requests of one producer. Not for several threads at once.

    most_unread: characters, tokens and entries of log probabilities of one tenant that may wait for a reader.
    """

    def __init__(self, most_unread: int) -> None:
        self._most_unread = most_unread
        # A bare Submission until the first sign of its answer: most of what is open may be on its way for long.
        self._followed: dict[bytes, _Followed | Submission] = {}
        self._tenants: dict[str, _TenantInbox] = {}

    def __len__(self) -> int:
        """Requests whose end has not been read."""
        return len(self._followed)

    def __contains__(self, key: bytes) -> bool:
        """Whether this is the key of a followed request: other records need no decoding."""
        return key in self._followed

    def follow(self, submission: Submission) -> None:
        """From now on its events count."""
        self._followed[_key(submission)] = submission
        tenant = self._tenants.get(submission.tenant)
        if tenant is None:
            tenant = self._tenants[submission.tenant] = _TenantInbox()
        tenant.open += 1

    def apply(self, event: TokenLogEvent) -> Submission | None:
        """Take the log's next event. The submission if there is something new to read of it."""
        followed = self._get(event.request_id.encode())
        if followed is None or followed.ending is not None:
            return None
        before = followed.unread
        if followed.log.apply(event) is None:
            return None
        if followed.log.terminal is not None:
            followed.ending = _ending(followed, followed.log.terminal)
        grown = followed.unread - before
        if not grown and followed.ending is None:
            return None
        self._grown(followed, grown)
        return followed.submission

    def fail(self, submission: Submission, failure: DeliveryFailed) -> bool:
        """It did not reach the broker: nothing will come, and this is its end. False if it had one."""
        followed = self._get(_key(submission))
        if followed is None or followed.ending is not None:
            return False
        followed.ending = NotDelivered(submission, failure)
        self._grown(followed, 0)
        return True

    def take(self, tenant: str | None) -> Result | None:
        """The next result of a tenant, or of all of them; None when there is nothing new.

        Requests take turns in the order in which they became ready.
        """
        for inbox in self._of(tenant):
            if not inbox.ready:
                continue
            followed = inbox.ready[0]
            inbox.unread -= followed.unread
            result = followed.take()
            if followed.ending is None or result is followed.ending:
                inbox.ready.popleft()
                followed.queued = False
            if result is followed.ending:
                self._drop(followed)
            return result
        return None

    def has_ended(self, submission: Submission) -> bool:
        """Its end has come (and has not been read)."""
        followed = self._get(_key(submission))
        return followed is not None and followed.ending is not None

    def claim(self, submission: Submission) -> None:
        """Somebody waits for its end: it is no longer in `take`. Raises KeyError if it is not followed."""
        followed = self._get(_key(submission))
        if followed is None:
            raise KeyError(submission.request_id)
        if not followed.claimed:
            followed.claimed = True
            inbox = self._tenants[submission.tenant]
            inbox.claimed += 1
            inbox.unread -= followed.unread
            if followed.queued:
                inbox.ready.remove(followed)
                followed.queued = False

    def release(self, submission: Submission) -> None:
        """Nobody waits for it any longer: back to `take`, with what it has not given out."""
        followed = self._get(_key(submission))
        if followed is not None and followed.claimed:
            followed.claimed = False
            self._tenants[submission.tenant].claimed -= 1
            if followed.unread or followed.ending is not None:
                self._grown(followed, followed.unread)

    def take_ending(self, submission: Submission) -> Ending | None:
        """The end of a claimed submission, once; None while it has not come. Raises KeyError if it is not followed."""
        followed = self._get(_key(submission))
        if followed is None:
            raise KeyError(submission.request_id)
        if followed.ending is not None:
            self._drop(followed)
        return followed.ending

    def forget(self, submission: Submission) -> None:
        """Its results are not wanted; what comes for it is not looked at."""
        followed = self._get(_key(submission))
        if followed is None:
            return
        inbox = self._tenants[submission.tenant]
        if not followed.claimed:
            inbox.unread -= followed.unread
        if followed.queued:
            inbox.ready.remove(followed)
        self._drop(followed)

    def open_count(self, tenant: str | None) -> int:
        """Submissions whose end `take` will still bring."""
        return sum(inbox.open - inbox.claimed for inbox in self._of(tenant))

    def full(self, tenant: str) -> bool:
        """More waits for a reader than may: read no further."""
        return tenant in self._tenants and self._tenants[tenant].unread > self._most_unread

    def drained(self, tenant: str) -> bool:
        """So little waits that reading on is worth it."""
        return tenant not in self._tenants or self._tenants[tenant].unread <= self._most_unread // 2

    def _get(self, key: bytes) -> _Followed | None:
        found = self._followed.get(key)
        if isinstance(found, Submission):
            found = self._followed[key] = _Followed(found)
        return found

    def _of(self, tenant: str | None) -> Iterator[_TenantInbox]:
        if tenant is None:
            yield from self._tenants.values()
        elif tenant in self._tenants:
            yield self._tenants[tenant]

    def _grown(self, followed: _Followed, by: int) -> None:
        if followed.claimed:
            return
        inbox = self._tenants[followed.submission.tenant]
        inbox.unread += by
        if not followed.queued:
            followed.queued = True
            inbox.ready.append(followed)

    def _drop(self, followed: _Followed) -> None:
        del self._followed[_key(followed.submission)]
        inbox = self._tenants[followed.submission.tenant]
        inbox.open -= 1
        inbox.claimed -= followed.claimed


def _key(submission: Submission) -> bytes:
    return submission.request_id.encode()


def _ending(followed: _Followed, event: TerminalEvent) -> Ending:
    match event:
        case RequestRejected():
            return Rejected(followed.submission, event)
        case GenerationFinished():
            return Finished(followed.submission, followed.log.text, event, tuple(followed.log.logprobs))
        case GenerationFailed():
            return Failed(followed.submission, followed.log.text, event)
