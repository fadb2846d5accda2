"""Requests that run inside vLLM, on an event loop in a thread of its own, and what they yield to another thread."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from gpu_consumers.plan import Logprobs

T = TypeVar("T")
_STOP_SECONDS: Final = 5.0
log = logging.getLogger("headrace.worker")


@dataclass(frozen=True, slots=True)
class Request:
    """What `AsyncLLM.generate` is given. top_logprobs: as in our SamplingParams."""

    prompt: Any
    parameters: Any
    adapter: Any | None = None
    top_logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class Token:
    token_id: int
    logprobs: Logprobs | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """No token comes any more. reason: why, for people."""

    reason: str


@dataclass(slots=True, eq=False)
class _Stream:
    slot: int
    request_id: str
    request: Request
    tokens: deque[Token] = field(default_factory=deque)  # made, and not taken yet
    ended: Ended | None = None
    task: asyncio.Task[None] | None = None


class LoopThread:
    """An event loop that runs in a thread until it is closed."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def call(self, make: Callable[[], T]) -> T:
        """Make something there, wait for it, and raise what it raises."""

        async def run() -> T:
            return make()

        return self.run(run())

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def post(self, callback: Callable[..., object], *arguments: object) -> None:
        """Run it there, some time."""
        self._loop.call_soon_threadsafe(callback, *arguments)

    @property
    def is_closed(self) -> bool:
        return self._loop.is_closed()

    def close(self) -> None:
        """End what runs there and the thread; once."""
        self.run(self._cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    async def _cancel_all(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


class Streams:
    """`start`, `stop` and `take` belong to one thread; vLLM's loop runs in another.

    A request runs on between two calls of `take`: what it makes meanwhile waits here, no more than it may make.
    """

    def __init__(self, llm: Any, loop: LoopThread, dead: type[Exception]) -> None:
        """llm: an AsyncLLM. dead: what it raises when it is gone as a whole."""
        self._llm = llm
        self._loop = loop
        self._dead = dead
        self._streams: dict[int, _Stream] = {}
        self._stopping: set[asyncio.Task[None]] = set()
        self._started = 0
        self._changed = threading.Condition()
        self._awaited: set[int] = set()  # slots that `take` waits for
        self._death: Exception | None = None

    def __contains__(self, slot: int) -> bool:
        return slot in self._streams

    def start(self, slot: int, request: Request) -> None:
        """A new request of the slot, which has none."""
        self._started += 1
        stream = self._streams[slot] = _Stream(slot, f"headrace-{self._started}", request)
        self._loop.post(self._begin, stream)

    def stop(self, slot: int) -> None:
        """Its request ends, whatever it has made; nothing if it has none."""
        stream = self._streams.pop(slot, None)
        if stream is not None:
            self._loop.post(self._end, stream)

    def take(self, slots: Collection[int]) -> Mapping[int, Token | Ended]:
        """The next token of each; waits until each has one or can have none. Raises the engine's death."""
        streams = [self._streams[slot] for slot in slots]
        with self._changed:
            self._awaited = {stream.slot for stream in streams if not stream.tokens and stream.ended is None}
            self._changed.wait_for(lambda: not self._awaited or self._death is not None)
            if self._death is not None:
                raise self._death
            return {stream.slot: _next(stream) for stream in streams}

    def close(self) -> None:
        """Every request ends, and vLLM has been told so, if it still listens."""
        for slot in list(self._streams):
            self.stop(slot)
        self._loop.run(self._stopped())
        self._llm = None

    async def _stopped(self) -> None:
        if self._stopping:
            await asyncio.wait(self._stopping, timeout=_STOP_SECONDS)

    def _begin(self, stream: _Stream) -> None:
        stream.task = asyncio.get_running_loop().create_task(self._pull(stream))

    def _end(self, stream: _Stream) -> None:
        task = asyncio.get_running_loop().create_task(self._abort(stream))
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    async def _abort(self, stream: _Stream) -> None:
        assert stream.task is not None  # callbacks run in the order of their posts
        if not stream.task.done():
            stream.task.cancel()
            await asyncio.wait([stream.task])
            try:
                await self._llm.abort(stream.request_id)  # in case it was not yet in the hands of `generate`
            except Exception as error:
                log.debug("vLLM did not take the abort of %s: %s", stream.request_id, error)

    async def _pull(self, stream: _Stream) -> None:
        request = stream.request
        reason = "vLLM ended the answer without saying why"
        try:
            outputs = self._llm.generate(
                request.prompt, request.parameters, stream.request_id, lora_request=request.adapter
            )
            async for output in outputs:
                made = output.outputs[0]
                self._made(stream, _tokens(made, request.top_logprobs))
                if made.finish_reason is not None:
                    reason = f"vLLM ended the answer: {made.finish_reason}"
        except self._dead as error:
            self._died(error)
            return
        except Exception as error:
            reason = why_not(error)
        self._made(stream, [], Ended(reason))

    def _made(self, stream: _Stream, tokens: list[Token], ended: Ended | None = None) -> None:
        with self._changed:
            stream.tokens.extend(tokens)
            stream.ended = ended
            if self._streams.get(stream.slot) is stream and stream.slot in self._awaited and (tokens or ended):
                self._awaited.discard(stream.slot)
                if not self._awaited:
                    self._changed.notify()

    def _died(self, error: Exception) -> None:
        with self._changed:
            self._death = error
            self._changed.notify()


def why_not(error: Exception) -> str:
    """What vLLM says of a request that it can't run, for people."""
    cause = error.__cause__ or error  # EngineGenerateError itself says nothing
    return f"vLLM can't run it: {type(cause).__name__}: {cause}"


def _next(stream: _Stream) -> Token | Ended:
    if stream.tokens:
        return stream.tokens.popleft()
    assert stream.ended is not None
    return stream.ended


def _tokens(made: Any, top_logprobs: int | None) -> list[Token]:
    """Of a CompletionOutput in DELTA mode."""
    if top_logprobs is None or made.logprobs is None:
        return [Token(token_id) for token_id in made.token_ids]
    return [
        Token(token_id, _logprobs(token_id, told, top_logprobs))
        for token_id, told in zip(made.token_ids, made.logprobs, strict=True)
    ]


def _logprobs(token_id: int, told: Mapping[int, Any], top_logprobs: int) -> Logprobs:
    """vLLM tells the drawn token and the likeliest ones in one mapping, each with its rank from 1 up."""
    ranked = sorted((entry.rank, other, entry.logprob) for other, entry in told.items())
    return Logprobs(
        told[token_id].logprob,
        tuple((other, logprob) for rank, other, logprob in ranked if rank <= top_logprobs),
    )
