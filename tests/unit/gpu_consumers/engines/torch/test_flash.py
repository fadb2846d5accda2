"""Paged attention and decode graphs, as they run on CUDA, with the kernel's promise in plain operations (on a CPU)."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from gpu_consumers.engines.torch import TorchEngine, load_torch_engine
from gpu_consumers.engines.torch.attention_rule import FULL_ATTENTION, AttentionRule
from gpu_consumers.engines.torch.flash import can_flash
from gpu_consumers.plan import Admission, PrefillChunk, SamplingParams, StepPlan
from tests.batching import Request, run_batch
from tests.oracle import Oracle
from tests.unit.gpu_consumers.engines.torch.conftest import VOCABULARY
from tests.varlen_attention import varlen_attention

Directory = Callable[[str], Path]
LENGTHS = (1, 3, 255, 256, 257, 300)


class Replays:
    """Stands for CUDA's graphs: a recorded function is called again. It reads what lies in its input by then."""

    def __init__(self) -> None:
        self.count = 0
        self.recorded = 0

    def __call__(self, run: Callable[[], Tensor]) -> Callable[[], Tensor]:
        self.recorded += 1
        run()

        def replay() -> Tensor:
            self.count += 1
            return run()

        return replay


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> Replays:
    replays = Replays()
    monkeypatch.setattr("gpu_consumers.engines.torch.loader.can_flash", lambda *given: True)
    monkeypatch.setattr("gpu_consumers.engines.torch.flash.varlen_attn", varlen_attention)
    monkeypatch.setattr("gpu_consumers.engines.torch.engine.CudaCapture", lambda: replays)
    return replays


def engine_of(directory: Path, *, slots: int = 5, prefix_cache_bytes: int = 0) -> TorchEngine:
    return load_torch_engine(
        directory, dtype="float32", slots=slots, max_context_tokens=512, prefix_cache_bytes=prefix_cache_bytes
    )


def requests(seed: int = 0) -> list[Request]:
    rng = random.Random(seed)
    return [
        Request(tuple(rng.randrange(3, VOCABULARY) for _ in range(length)), 8 + index)
        for index, length in enumerate(LENGTHS)
    ]


def assert_equal_to_generate(requests: list[Request], oracle: Oracle) -> None:
    for request in requests:
        expected = oracle.answer(request.prompt, request.output_tokens)
        assert request.output[: len(expected)] == expected
    assert any(len(request.output) > 4 for request in requests)


@pytest.mark.parametrize("variant", ["grouped", "gpt2", "qwen3", "gemma3"])
def test_paged_attention_makes_what_generate_makes(model_directory: Directory, replays: Replays, variant: str) -> None:
    directory = model_directory(variant)
    engine = engine_of(directory, prefix_cache_bytes=1 << 24)
    oracle = Oracle(directory)
    assert_equal_to_generate(run_batch(engine, requests(), step_tokens=120), oracle)
    # A prompt of which a whole block is known goes on behind it.
    prompt = requests()[-1].prompt
    assert engine.cached_tokens("", prompt) == 256
    chunk = PrefillChunk(0, prompt[256:], 256, True)
    admission = Admission(0, SamplingParams(), 400, cached_token_ids=prompt[:256])
    result = engine.execute(StepPlan(admitted=(admission,), prefills=(chunk,)))
    assert [result.tokens[0]] == oracle.answer(prompt, 1)
    assert replays.recorded == 0, "only a warm engine has graphs"


def test_layers_with_capped_scores_are_not_for_the_kernel() -> None:
    assert not can_flash(torch.device("cuda"), torch.bfloat16, 64, (FULL_ATTENTION, AttentionRule(softcap=50.0)))


def test_decodes_from_graphs_make_what_generate_makes(model_directory: Directory, replays: Replays) -> None:
    directory = model_directory("grouped")
    engine = engine_of(directory)
    engine.warm_up()
    assert replays.recorded == 4, "for 1, 2, 4 and all 5 slots"
    oracle = Oracle(directory)
    # Sequences leave at different times: rows that were theirs must not write to blocks of who comes after them.
    for seed in range(2):
        assert_equal_to_generate(run_batch(engine, requests(seed), step_tokens=200), oracle)
    assert replays.count > 10


def test_the_block_that_fills_steps_up_is_nobodys(model_directory: Directory, replays: Replays) -> None:
    engine = engine_of(model_directory("grouped"))
    free = engine.free_blocks
    engine.warm_up()
    assert engine.free_blocks == free == 5 * 2
    assert engine.kv_use().capacity_tokens == free * 256


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_on_cuda_in_half_precision_answers_stay_close_to_fp32(model_directory: Directory, dtype: str) -> None:
    directory = model_directory("grouped")
    exact = run_batch(engine_of(directory), requests())
    engine = load_torch_engine(directory, dtype=dtype, device="cuda", slots=5, max_context_tokens=512)
    engine.warm_up()
    halves = run_batch(engine, requests())
    first = [(a.output[0], b.output[0]) for a, b in zip(exact, halves, strict=True)]
    assert sum(a == b for a, b in first) >= len(first) - 2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
def test_on_cuda_a_recorded_decode_equals_one_that_is_not(model_directory: Directory) -> None:
    directory = model_directory("grouped")
    outputs = []
    for warm in (False, True):
        engine = load_torch_engine(directory, dtype="bfloat16", device="cuda", slots=1, max_context_tokens=512)
        if warm:
            engine.warm_up()
        outputs.append([request.output for request in run_batch(engine, requests())])
    assert outputs[0] == outputs[1]
