"""What an engine runs before its first request, so that no request pays for what is set up once. Pure: plans alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpu_consumers.engine import EngineInfo
from gpu_consumers.plan import Admission, Decode, PrefillChunk, SamplingParams, StepPlan


def warm_up_plans(info: EngineInfo, draws: Sequence[SamplingParams]) -> Iterator[StepPlan]:
    """Every kind of draw, chunks that begin and that go on, decodes beside a chunk, and decodes of 1, 2, 4, ... slots.

    The slots must be free, and are free afterwards. As many of them take part as find a block of KV memory each, and
    steps that no context is long enough for are left out.
    """
    slots = range(min(info.slots, info.kv_blocks or info.slots))
    yield from _draws(slots, draws)
    free = [sampling for sampling in draws if sampling.json_schema is None]  # a schema asks for tokens of its own
    yield StepPlan(
        admitted=tuple(Admission(slot, free[slot % len(free)], info.max_context_tokens) for slot in slots),
        prefills=tuple(PrefillChunk(slot, (0,), 0, last=False) for slot in slots),
    )
    yield from _steps(slots, info.max_context_tokens)
    yield StepPlan(released=tuple(slots))


def _draws(slots: range, draws: Sequence[SamplingParams]) -> Iterator[StepPlan]:
    for first in range(0, len(draws), len(slots)):
        now = draws[first : first + len(slots)]
        yield StepPlan(
            admitted=tuple(Admission(slot, sampling, 1) for slot, sampling in enumerate(now)),
            prefills=tuple(PrefillChunk(slot, (0,), 0, last=True) for slot in range(len(now))),
        )
        yield StepPlan(released=tuple(range(len(now))))


def _steps(slots: range, context_tokens: int) -> Iterator[StepPlan]:
    """Of sequences with one token each. The first stays behind the others, whose decodes run beside its chunk."""
    computed = [1 for _ in slots]

    def chunks(chosen: range) -> tuple[PrefillChunk, ...]:
        return tuple(PrefillChunk(slot, (0,), _grown(computed, slot), last=True) for slot in chosen)

    def decodes(chosen: range) -> tuple[Decode, ...]:
        return tuple(Decode(slot, 0, _grown(computed, slot)) for slot in chosen)

    if context_tokens < 2:
        return
    yield StepPlan(prefills=chunks(slots[1:]))
    yield StepPlan(prefills=chunks(slots[:1]), decodes=decodes(slots[1:]) if context_tokens > 2 else ())
    for count in sorted({*(1 << power for power in range(len(slots).bit_length())), len(slots)}):
        if max(computed) < context_tokens:
            yield StepPlan(decodes=decodes(slots[:count]))


def _grown(computed: list[int], slot: int) -> int:
    """Where the slot's next token goes, which is counted as run."""
    computed[slot] += 1
    return computed[slot] - 1
