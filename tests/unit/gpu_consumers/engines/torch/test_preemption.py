"""The scheduler takes slots away and gives them back: with weights, text goes on as if that had never happened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpu_consumers.engines.torch.loader import load_torch_engine
from gpu_consumers.plan import SamplingParams
from gpu_consumers.scheduler import Scheduler
from gpu_consumers.sequence import Sequence

OUTPUT_TOKENS = 24


def sequence(number: int, priority: int) -> Sequence:
    """Half of them sampled, and prompts longer than a block."""
    prompt = tuple((7 * number + 3 * position) % 110 + 3 for position in range(40 + 30 * number))
    sampling = SamplingParams(temperature=1.2 if number % 2 else 0.0, seed=number)
    return Sequence(f"r{number}", "t", prompt, len(prompt) + OUTPUT_TOKENS, sampling, priority=priority)


@pytest.mark.parametrize("prefix_cache_bytes", [0, 1 << 24])
def test_text_of_a_preempted_sequence_is_the_text_of_one_that_never_was(
    model_directory: Callable[[str], Path], prefix_cache_bytes: int
) -> None:
    engine = load_torch_engine(
        model_directory("grouped"), dtype="float32", slots=2, max_context_tokens=256, max_step_tokens=64,
        prefix_cache_bytes=prefix_cache_bytes,
    )  # fmt: skip
    outputs: dict[bool, dict[str, list[int]]] = {}
    preempted = resumed_cached = 0
    for in_classes in (False, True):
        scheduler = Scheduler(engine.info, cached_tokens=engine.cached_tokens if in_classes else lambda *_: 0)
        made = outputs[in_classes] = {f"r{number}": [] for number in range(5)}
        waiting = [sequence(number, number if in_classes else 0) for number in range(5)]
        step_number = 0
        while waiting or scheduler.waiting_count or scheduler.running_count:
            if waiting and step_number % 9 == 0:
                scheduler.add(waiting.pop(0))
            step_number += 1
            step = scheduler.next_step(step_number)
            preempted += len(step.preempted)
            resumed_cached += sum(step.resumed.values())
            outcome = scheduler.take(engine.execute(step.plan))
            assert not outcome.failures
            for request_id, token_id in outcome.tokens.items():
                made[request_id].append(token_id)
                if len(made[request_id]) == OUTPUT_TOKENS:
                    scheduler.remove(request_id)
        engine.execute(scheduler.next_step(step_number).plan)
    assert outputs[True] == outputs[False]
    assert preempted >= 3
    assert bool(resumed_cached) == bool(prefix_cache_bytes)
