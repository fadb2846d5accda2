"""Whoever a drain waits for does end in it, as long as steps take what they cost; it never waits longer than it may."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gpu_consumers.drain import Drain, Unfinished
from gpu_consumers.step_costs import StepCosts

COSTS = st.builds(
    StepCosts, step_us=st.floats(0, 50_000), decode_us=st.floats(0, 5_000), prefill_token_us=st.floats(0, 2_000)
)
REQUESTS = st.builds(Unfinished, prefill_tokens=st.integers(0, 300), output_tokens=st.integers(1, 200))


@given(st.lists(REQUESTS, min_size=1, max_size=6), COSTS, st.floats(0.05, 5.0), st.integers(8, 64))
def test_who_is_short_at_the_beginning_has_ended_in_time(
    batch: list[Unfinished], costs: StepCosts, seconds: float, step_tokens: int
) -> None:
    drain = Drain(until_s=seconds, step_tokens=step_tokens)
    # each by a number of its own, so that it is known again
    short = {n for n, request in enumerate(batch) if drain.is_short(request, batch, costs, now_s=0.0)}
    left = dict(enumerate(batch))
    now_s = 0.0
    while short & left.keys():
        names, requests = list(left), list(left.values())
        prefill_tokens = decodes = 0
        room = step_tokens - sum(1 for request in requests if not request.prefill_tokens)
        for name, request in zip(names, requests, strict=True):
            chunk = min(room, request.prefill_tokens)
            room -= chunk
            prefill_tokens += chunk
            decodes += not request.prefill_tokens
            yields = chunk == request.prefill_tokens  # the last chunk of a prefill yields a token, too
            left[name] = replace(
                request, prefill_tokens=request.prefill_tokens - chunk, output_tokens=request.output_tokens - yields
            )
            if not left[name].output_tokens:
                del left[name]
        now_s += costs.duration_us(prefill_tokens, decodes) / 1e6
    assert now_s <= seconds * (1 + 1e-9)


@given(st.lists(REQUESTS, max_size=6), COSTS, st.floats(0.0, 5.0))
def test_a_drain_never_goes_on_past_its_end(batch: list[Unfinished], costs: StepCosts, late_s: float) -> None:
    assert Drain(until_s=3.0, step_tokens=64).is_over(batch, costs, now_s=3.0 + late_s)
