"""The simplest continuous batching over an engine, for tests and benches of the engine alone.

Requests join in order as slots come free, prefill in chunks beside the decodes of others, and leave when they
have all their tokens. (The scheduler proper has tenants, deadlines and priorities; here none of it matters.)
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from gpu_consumers.engine import Engine
from gpu_consumers.plan import Admission, Decode, Logprobs, PrefillChunk, SamplingParams, StepPlan


@dataclass(slots=True)
class Request:
    """`emitted`: output tokens of earlier attempts, prefilled behind the prompt; output goes on after them.

    logprobs: of the output, if the sampling parameters ask for them. ends_at: a token behind which nothing follows.
    """

    prompt: tuple[int, ...]
    output_tokens: int
    sampling: SamplingParams = field(default_factory=SamplingParams)
    emitted: tuple[int, ...] = ()
    adapter: str | None = None
    output: list[int] = field(default_factory=list)
    logprobs: list[Logprobs] = field(default_factory=list)
    failure: str | None = None
    prefilled: int = 0
    ends_at: int | None = None

    @property
    def tokens(self) -> tuple[int, ...]:
        return self.prompt + self.emitted

    @property
    def has_ended(self) -> bool:
        return (
            self.failure is not None
            or len(self.output) == self.output_tokens
            or (self.ends_at is not None and self.output[-1:] == [self.ends_at])
        )


def run_batch(
    engine: Engine,
    requests: list[Request],
    *,
    concurrency: int | None = None,
    chunk_tokens: int | None = None,
    step_tokens: int | None = None,
) -> list[Request]:
    """Run all requests to their end, `concurrency` at once (None: as many as the engine has slots), and return them.

    chunk_tokens: the longest prefill chunk. step_tokens: budget of a step (None: the engine's own wish).
    """
    concurrency = min(concurrency or engine.info.slots, engine.info.slots)
    waiting, running = deque(requests), dict[int, Request]()
    free, released = list(range(concurrency))[::-1], list[int]()
    while waiting or running:
        admitted = []
        while waiting and free:
            request, slot = waiting.popleft(), free.pop()
            running[slot] = request
            admitted.append(_admission(slot, request))
        decodes = tuple(_decode(slot, request) for slot, request in running.items() if request.output)
        budget = (step_tokens or engine.info.max_step_tokens) - len(decodes)
        prefills = _prefills(running, budget, chunk_tokens)
        result = engine.execute(StepPlan(tuple(released), tuple(admitted), prefills, decodes))
        released = []
        for chunk in prefills:
            running[chunk.slot].prefilled += len(chunk.token_ids)
        for slot, token in result.tokens.items():
            running[slot].output.append(token)
        for slot, told in result.logprobs.items():
            running[slot].logprobs.append(told)
        for slot, reason in result.failures.items():
            running[slot].failure = reason
        for slot, request in list(running.items()):
            if request.has_ended:
                del running[slot]
                released.append(slot)
                free.append(slot)
    engine.execute(StepPlan(released=tuple(released)))
    return requests


def _admission(slot: int, request: Request) -> Admission:
    most = len(request.tokens) + request.output_tokens
    return Admission(
        slot,
        request.sampling,
        most,
        first_output_index=len(request.emitted),
        adapter=request.adapter,
        prompt_tokens=len(request.prompt),
    )


def _decode(slot: int, request: Request) -> Decode:
    return Decode(slot, request.output[-1], len(request.tokens) + len(request.output) - 1)


def _prefills(running: dict[int, Request], budget: int, chunk_tokens: int | None) -> tuple[PrefillChunk, ...]:
    chunks = []
    for slot, request in running.items():
        start = request.prefilled
        tokens = request.tokens[start : start + max(0, min(budget, chunk_tokens or budget))]
        if tokens and not request.output:
            chunks.append(PrefillChunk(slot, tokens, start, last=start + len(tokens) == len(request.tokens)))
            budget -= len(tokens)
    return tuple(chunks)
