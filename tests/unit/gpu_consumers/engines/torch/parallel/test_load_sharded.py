"""Two ranks on the CPU over gloo: the code that runs over NCCL, but for the transport."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from gpu_consumers.engines.torch import load_torch_engine
from gpu_consumers.engines.torch.parallel.followers import load_sharded
from gpu_consumers.errors import EngineConfigurationError, EngineFailedError, UnsupportedModelError
from gpu_consumers.plan import Admission, SamplingParams, StepPlan
from tests.batching import Request, run_batch
from tests.oracle import Oracle
from tests.unit.gpu_consumers.engines.torch.conftest import VOCABULARY

Directory = Callable[[str], Path]
loader = partial(load_torch_engine, dtype="float32", slots=4, max_context_tokens=256)


def requests(count: int) -> list[Request]:
    rng = random.Random(5)
    return [Request(tuple(rng.randrange(3, VOCABULARY) for _ in range(rng.randrange(5, 80))), 12) for _ in range(count)]


def assert_equal_to_generate(requests: list[Request], oracle: Oracle) -> None:
    for request in requests:
        expected = oracle.answer(request.prompt, request.output_tokens)
        assert request.output[: len(expected)] == expected
        assert len(expected) > 3, "near ties left too little to compare"


@pytest.mark.parametrize("variant", ["qwen3", "gpt2"])
def test_two_ranks_make_what_generate_makes(model_directory: Directory, variant: str) -> None:
    directory = model_directory(variant)
    oracle = Oracle(directory)
    engine = load_sharded(2, "cpu", partial(loader, directory, prefix_cache_bytes=1 << 20))
    try:
        engine.warm_up()
        assert_equal_to_generate(run_batch(engine, requests(6), chunk_tokens=33), oracle)
        # A sequence that goes wrong leaves its neighbours alone on all ranks.
        good, bad = requests(2)
        bad.prompt = (5, VOCABULARY)
        run_batch(engine, [bad, good])
        assert bad.failure == f"token id {VOCABULARY} is outside the vocabulary of {VOCABULARY}"
        assert_equal_to_generate([good], oracle)
    finally:
        engine.close()


def test_heads_that_cannot_be_shared_are_refused(model_directory: Directory) -> None:
    with pytest.raises(UnsupportedModelError, match="1 key value heads, which 2 ranks can't share"):
        load_sharded(2, "cpu", partial(loader, model_directory("one key head")))


def test_a_rank_that_is_gone_ends_the_engine(model_directory: Directory) -> None:
    engine = load_sharded(2, "cpu", partial(loader, model_directory("grouped")))
    try:
        (follower,) = multiprocessing.active_children()
        follower.kill()
        follower.join()
        with pytest.raises(EngineFailedError, match="rank 1 of the model is gone"):
            engine.execute(StepPlan(admitted=(Admission(0, SamplingParams(), 8),)))
    finally:
        engine.close()


def test_more_ranks_than_devices_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    with pytest.raises(EngineConfigurationError, match="2 ranks need 2 CUDA devices"):
        load_sharded(2, "cuda", loader)
