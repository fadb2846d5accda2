"""SyncStream: the same as Stream, for threads. The stream itself runs on a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, Self, TypeVar

from headrace_client.answer import Answer, answer_of
from headrace_client.errors import Closed
from headrace_client.stream import Response, Stream
from headrace_client.stream_events import OutputTextDelta, ResponseEnd, StreamEvent

T = TypeVar("T")


class SyncStream:
    """`with SyncStream(url, api_key=...) as stream`. Threads may share it; each response has one reader.

    What is not documented here is as in Stream, with further arguments of StreamSettings.
    """

    def __init__(self, url: str, *, api_key: str, **settings: Any) -> None:
        self._stream = Stream(url, api_key=api_key, **settings)
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None  # while it is open
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Connects. Raises GatewayRefused and GatewayUnreachable."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="headrace-stream", daemon=True)
        self._thread.start()
        try:
            self._call(self._stream.__aenter__())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def create(self, *, timeout: float | None = None, retry: bool = False, **request: Any) -> SyncResponse:
        return SyncResponse(self, self._call(self._stream.create(timeout=timeout, retry=retry, **request)))

    def resume(self, response_id: str, *, starting_after: int = -1, timeout: float | None = None) -> SyncResponse:
        resuming = self._stream.resume(response_id, starting_after=starting_after, timeout=timeout)
        return SyncResponse(self, self._call(resuming))

    def close(self) -> None:
        """From any thread: readers get Closed."""
        if self._loop is None:
            return
        try:
            self._call(self._stream.close())
        finally:
            self._stop()

    def _begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        with self._lock:  # a loop that has stopped would never answer
            if self._loop is not None:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        raise Closed("the stream is not open: use it as `with SyncStream(...) as stream`")

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        doing = self._begin(work)
        try:
            return doing.result()
        except BaseException:
            doing.cancel()  # Ctrl-C; else it is done
            raise

    def _stop(self) -> None:
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is None or self._thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


class SyncResponse:
    """One response: iterate over it for its events. Ctrl-C while it waits loses none: iterate again."""

    def __init__(self, stream: SyncStream, response: Response) -> None:
        self._stream = stream
        self._response = response
        self._taken: deque[StreamEvent] = deque()
        self._taking: Future[list[StreamEvent]] | None = None

    @property
    def response_id(self) -> str:
        return self._response.response_id

    @property
    def last_sequence_number(self) -> int:
        """Of what has been read: where a resume elsewhere goes on."""
        return self._response.last_sequence_number

    @property
    def end(self) -> ResponseEnd | None:
        """The last event, once it has been read."""
        return self._response.end

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> StreamEvent:
        if not self._taken:
            self._taken.extend(self._take())
            if not self._taken:
                raise StopIteration
        return self._response.read(self._taken.popleft())

    def text_deltas(self) -> Iterator[str]:
        """The text as it comes."""
        for event in self:
            if isinstance(event, OutputTextDelta):
                yield event.delta

    def answer(self) -> Answer:
        """As Response.answer."""
        for _ in self:
            pass
        assert self.end is not None  # iterating ends behind it, or raises
        return answer_of(self.end)

    def cancel(self) -> None:
        """As Response.cancel."""
        self._stream._call(self._response.cancel())

    def _take(self) -> list[StreamEvent]:
        """All that has come. A wait that was interrupted is taken up again, with what it has brought."""
        if self._taking is None:
            self._taking = self._stream._begin(self._response.take())
        try:
            events = self._taking.result()
        except CancelledError:
            raise Closed("the stream is closed") from None
        except Exception:
            self._taking = None
            raise
        self._taking = None
        return events
