"""Too little memory for all that could run: answers take turns, and every text is that of `generate()`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_consumers.engines.torch import TorchEngine, load_torch_engine
from gpu_consumers.engines.torch.batch import StepBatch
from gpu_consumers.engines.torch.kv_memory import KvMemory
from gpu_consumers.engines.torch.model import CausalModel
from gpu_consumers.plan import Admission, PrefillChunk, SamplingParams, StepPlan
from gpu_consumers.sequence import Sequence
from tests.oracle import Oracle
from tests.scheduled import Answers, run_scheduled

Directory = Callable[[str], Path]

BLOCK_BYTES = 2 * 2 * 2 * 64 * 16 * 4  # layers, keys and values, heads, tokens, head size, float32
OUTPUT_TOKENS = 40


def engine_of(directory: Path, *, slots: int = 64, blocks: int = 64, prefix_cache_bytes: int = 0) -> TorchEngine:
    return load_torch_engine(
        directory, dtype="float32", slots=slots, max_context_tokens=256, kv_cache_bytes=blocks * BLOCK_BYTES,
        prefix_cache_bytes=prefix_cache_bytes,
    )  # fmt: skip


def sequences(count: int, sampling: SamplingParams | None = None) -> list[Sequence]:
    """Prompts of which most fill a block in the middle of their answer."""
    prompts = [tuple(3 + (7 * n + 5 * i) % 110 for i in range(30 + 11 * n)) for n in range(count)]
    return [
        Sequence(f"r{n}", f"t{n % 3}", prompt, len(prompt) + OUTPUT_TOKENS, sampling or SamplingParams(seed=n))
        for n, prompt in enumerate(prompts)
    ]


def assert_equal_to_generate(answers: Answers, directory: Path, count: int) -> None:
    assert answers.failures == {}
    oracle, compared = Oracle(directory), 0
    for one in sequences(count):
        expected = oracle.answer(one.prefix_token_ids, OUTPUT_TOKENS)
        assert answers.tokens[one.request_id][: len(expected)] == expected
        assert len(answers.tokens[one.request_id]) == OUTPUT_TOKENS
        compared += len(expected)
    assert compared > 0.7 * count * OUTPUT_TOKENS, "near ties left too little to compare"


@pytest.mark.parametrize("prefix_cache_bytes", [0, 1 << 20])
def test_with_more_slots_than_memory_holds_every_text_is_that_of_generate(
    model_directory: Directory, prefix_cache_bytes: int
) -> None:
    directory = model_directory("grouped")
    engine = engine_of(directory, blocks=6, prefix_cache_bytes=prefix_cache_bytes)
    engine.warm_up()
    answers = run_scheduled(engine, sequences(10))
    assert engine.free_blocks == 6
    assert_equal_to_generate(answers, directory, 10)


def test_a_sequence_that_gave_its_blocks_up_goes_on_with_the_same_text(model_directory: Directory) -> None:
    """Two that together outgrow the memory while both decode."""
    directory = model_directory("grouped")
    sampling = SamplingParams(temperature=1.1, seed=5)
    two = [Sequence(f"r{n}", "t", tuple(range(3, 63)), 60 + 160, sampling) for n in range(2)]
    answers = run_scheduled(engine_of(directory, blocks=5), two)
    assert answers.preemptions == 1
    assert answers.tokens["r0"] == answers.tokens["r1"]
    assert len(answers.tokens["r0"]) == 160


Fails = Callable[[int, int], bool]
"""Whether a step fails, by its number from 0 and its tokens."""


class ShortMemory:
    """The model's forward pass on a device that has too little memory for some steps.

    It fails when its keys and values are written: the worst moment, since a sequence has more in memory then than it
    should.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails: Fails) -> None:
        self.tokens: list[int] = []  # of each step
        self.failed = 0
        forward: Any = CausalModel.forward

        def short_of_memory(model: CausalModel, batch: StepBatch, memory: KvMemory) -> torch.Tensor | None:
            logits: torch.Tensor | None = forward(model, batch, memory)
            number, tokens = len(self.tokens), len(batch.token_ids)
            self.tokens.append(tokens)
            if fails(number, tokens):
                self.failed += 1
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
            return logits

        monkeypatch.setattr(CausalModel, "forward", short_of_memory)


@pytest.mark.parametrize("prefix_cache_bytes", [0, 1 << 20])
@pytest.mark.parametrize("fails_at", [0, 3, 20])
def test_a_step_that_runs_out_of_memory_once_costs_nothing_but_time(
    model_directory: Directory, monkeypatch: pytest.MonkeyPatch, fails_at: int, prefix_cache_bytes: int
) -> None:
    directory = model_directory("grouped")
    engine = engine_of(directory, prefix_cache_bytes=prefix_cache_bytes)
    short = ShortMemory(monkeypatch, lambda number, tokens: number == fails_at)
    answers = run_scheduled(engine, sequences(6))
    assert (short.failed, engine.free_blocks) == (1, 64)
    assert answers.preemptions > 0
    assert_equal_to_generate(answers, directory, 6)


def test_steps_shrink_until_they_fit_and_nothing_is_lost(
    model_directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = model_directory("grouped")
    short = ShortMemory(monkeypatch, lambda number, tokens: tokens > 7)
    answers = run_scheduled(engine_of(directory), sequences(10))
    assert 1 < short.failed < 12
    assert_equal_to_generate(answers, directory, 10)


def test_what_does_not_fit_even_alone_ends_alone(model_directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    ShortMemory(monkeypatch, lambda number, tokens: True)
    answers = run_scheduled(engine_of(model_directory("grouped")), sequences(3))
    assert answers.failures == dict.fromkeys(
        ["r0", "r1", "r2"], "not even one token of it fits into the engine's memory"
    )
    assert answers.tokens == {}


def test_sampled_and_shaped_answers_are_the_same_after_memory_ran_out(
    model_directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Penalties count tokens, and the count must not know of a step that never was."""
    sampling = SamplingParams(temperature=1.3, seed=3, frequency_penalty=0.7, repetition_penalty=1.2, top_k=40)
    directory = model_directory("grouped")
    undisturbed = run_scheduled(engine_of(directory), sequences(6, sampling))
    short = ShortMemory(monkeypatch, lambda number, tokens: number in (2, 17))
    answers = run_scheduled(engine_of(directory), sequences(6, sampling))
    assert short.failed == 2
    assert answers.tokens == undisturbed.tokens


def test_failures_of_a_step_count_though_it_did_not_fit(
    model_directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(model_directory("grouped"))
    ShortMemory(monkeypatch, lambda number, tokens: True)
    admitted = tuple(Admission(slot, SamplingParams(), 99) for slot in (0, 1))
    chunks = (PrefillChunk(0, (5, 6, 7), 0, True), PrefillChunk(1, (5, -1), 0, True))
    result = engine.execute(StepPlan(admitted=admitted, prefills=chunks))
    assert not result.tokens
    assert result.deferred == frozenset({0})
    assert list(result.failures) == [1]
