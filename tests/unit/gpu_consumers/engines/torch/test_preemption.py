"""The scheduler takes slots away and gives them back: with weights, text goes on as if that had never happened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpu_consumers.engines.torch.loader import load_torch_engine
from gpu_consumers.plan import SamplingParams
from gpu_consumers.sequence import Sequence
from tests.scheduled import run_scheduled

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
    undisturbed = run_scheduled(engine, [sequence(number, 0) for number in range(5)], apart=9)
    answers = run_scheduled(engine, [sequence(number, number) for number in range(5)], apart=9)
    assert answers.failures == undisturbed.failures == {}
    assert answers.tokens == undisturbed.tokens
    assert answers.preemptions >= 3 > undisturbed.preemptions
    assert bool(answers.resumed_cached) == bool(prefix_cache_bytes)
