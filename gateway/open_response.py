"""A response that this gateway follows, and who waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from gateway.response_stream import ResponseStream

Wake = Callable[[], None]


@dataclass(eq=False, slots=True)
class OpenResponse:
    """A stream with its watchers, owned by the loop.

    submitted: the log has acknowledged the request. idle_since: when it was last watched or changed, on the
    monotonic clock. traceparent: of the trace that it belongs to, for what is written about it; None: its own.
    """

    stream: ResponseStream
    tenant: str
    idle_since: float
    submitted: bool = False
    traceparent: bytes | None = None
    watchers: dict[Wake, None] = field(default_factory=dict)

    async def until(self, condition: Callable[[ResponseStream], bool]) -> None:
        """Wait until this holds for the stream."""
        await until([self], lambda: condition(self.stream))


@contextmanager
def watched(responses: Iterable[OpenResponse]) -> Iterator[asyncio.Event]:
    """An event that is set whenever one of the streams has grown; clear it before you look."""
    changed = asyncio.Event()
    watching = list(responses)
    for response in watching:
        response.watchers[changed.set] = None
    try:
        yield changed
    finally:
        for response in watching:
            del response.watchers[changed.set]


async def until(responses: Iterable[OpenResponse], condition: Callable[[], bool]) -> None:
    """Wait until this holds, which may change whenever one of the streams grows."""
    with watched(responses) as changed:
        while not condition():
            await changed.wait()
            changed.clear()
