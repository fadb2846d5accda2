"""What a client knows of one response, and how much of it may wait for a reader."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from headrace_client.errors import HeadraceError
from headrace_client.stream_events import StreamEvent


def _nobody() -> None:
    """Reads it yet."""


class Phase(Enum):
    """UNSENT: no socket has had the create. UNANSWERED: one has. OPEN: it has an id. ENDED: nothing will follow."""

    UNSENT = auto()
    UNANSWERED = auto()
    OPEN = auto()
    ENDED = auto()


@dataclass(frozen=True, slots=True)
class Limits:
    """buffer_events, buffer_chars: of one response, that wait for its reader: past either it is full.

    most_setbacks: sockets given up in a row without one new event, before the server is held to be broken.
    answer_s: longest that a create may be without an answer.
    """

    buffer_events: int = 1024
    buffer_chars: int = 1024 * 1024
    most_setbacks: int = 4
    answer_s: float = 30.0


@dataclass(eq=False, slots=True)
class ResponseState:
    """One response as this client knows it.

    body: the create's fields; None for one that was begun elsewhere. again: it may be sent twice rather than be
    uncertain. seen: the last sequence number. buffer: events for the reader; buffered_chars: of their frames.
    error: why nothing will follow, where no terminal event says so. waiting: the reader has nothing to do.
    wake: what tells him that there is something new.
    """

    body: Mapping[str, Any] | None
    again: bool = False
    response_id: str | None = None
    seen: int = -1
    phase: Phase = Phase.UNSENT
    buffer: deque[StreamEvent] = field(default_factory=deque)
    buffered_chars: int = 0
    error: HeadraceError | None = None
    cancelled: bool = False
    waiting: bool = False
    setbacks: int = 0
    sent_at: float = 0.0
    wake: Callable[[], None] = _nobody

    def take(self) -> list[StreamEvent]:
        """All that waits."""
        events = list(self.buffer)
        self.buffer.clear()
        self.buffered_chars = 0
        return events

    def fail(self, error: HeadraceError) -> None:
        """Nothing will follow. Its reader is woken."""
        if self.phase is not Phase.ENDED:
            self.phase, self.error = Phase.ENDED, error
        self.wake()
