from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
import torch

from gpu_consumers.engine import EngineInfo
from gpu_consumers.engines.torch import TorchEngine, load_torch_engine
from gpu_consumers.engines.torch.kv_memory import PAGED, KvLayout, KvShape
from gpu_consumers.engines.torch.kv_size import (
    HOST_SHARE,
    cuda_budget_bytes,
    host_budget_bytes,
    kv_blocks,
    largest_step,
)
from gpu_consumers.errors import EngineConfigurationError
from gpu_consumers.plan import StepPlan, StepResult

Directory = Callable[[str], Path]

INFO = EngineInfo("torch", 8, 200, 264, 120, frozenset())
SHAPE, LAYOUT = KvShape(layers=2, heads=2, head_dim=16), KvLayout()
BLOCK_BYTES = 2 * 2 * 2 * 64 * 16 * 4


def test_a_block_has_keys_and_values_of_all_layers() -> None:
    assert LAYOUT.block_bytes(SHAPE, torch.float32) == BLOCK_BYTES
    assert PAGED.block_bytes(SHAPE, torch.bfloat16) == 2 * BLOCK_BYTES


def test_there_are_as_many_blocks_as_the_budget_holds_and_no_more_than_all_slots_use() -> None:
    assert kv_blocks(INFO, SHAPE, LAYOUT, torch.float32, 10 * BLOCK_BYTES + 1) == 10
    assert kv_blocks(INFO, SHAPE, LAYOUT, torch.float32, 1 << 40) == 8 * 4


def test_a_budget_that_does_not_hold_one_whole_context_is_refused_with_what_it_takes() -> None:
    long = EngineInfo("torch", 1, 64 * 64, 264, 120, frozenset())
    with pytest.raises(EngineConfigurationError, match=r"4096 tokens needs 2 MiB .* there are 1 MiB: .*KV_CACHE_MIB"):
        kv_blocks(long, SHAPE, LAYOUT, torch.float32, 64 * BLOCK_BYTES - 1)


def test_processes_that_share_a_model_share_half_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_consumers.engines.torch.kv_size.available_bytes", lambda: 1000)
    assert HOST_SHARE == 0.5
    assert (host_budget_bytes(), host_budget_bytes(4)) == (500, 125)


@pytest.mark.parametrize("slots", [1, 5, 8])
def test_the_largest_step_fills_every_slot_and_fits_the_step(slots: int) -> None:
    plan = largest_step(EngineInfo("torch", slots, 200, 64, 120, frozenset()))
    assert [chunk.slot for chunk in plan.prefills] == list(range(slots))
    assert all(chunk.last for chunk in plan.prefills)
    assert 64 - slots < sum(len(chunk.token_ids) for chunk in plan.prefills) <= 64


def test_an_engine_says_how_many_blocks_it_has(model_directory: Directory) -> None:
    engine = load_torch_engine(
        model_directory("grouped"), dtype="float32", slots=8, max_context_tokens=256, kv_cache_bytes=7 * BLOCK_BYTES
    )
    assert (engine.info.kv_blocks, engine.info.block_tokens) == (7, 64)
    assert (engine.free_blocks, engine.kv_use().capacity_tokens, engine.kv_bytes) == (7, 7 * 64, 7 * BLOCK_BYTES)


def test_unless_it_is_told_it_measures_what_there_is(
    model_directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpu_consumers.engines.torch.kv_size.available_bytes", lambda: 10 * BLOCK_BYTES)
    engine = load_torch_engine(model_directory("grouped"), dtype="float32", slots=8, max_context_tokens=256)
    assert engine.info.kv_blocks == 5


class Trial:
    """An engine on a device that has so little left behind its weights."""

    device, kv_bytes = torch.device("cuda"), 100

    def __init__(self, result: StepResult) -> None:
        self._result = result

    def execute(self, plan: StepPlan) -> StepResult:
        return self._result

    def close(self) -> None:
        """Nothing to give back."""


@pytest.fixture
def left_on_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """200 of 1000 bytes."""
    monkeypatch.setattr("torch.cuda.synchronize", lambda device: None)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (200, 1000))
    monkeypatch.setattr("torch.cuda.empty_cache", lambda: None)


def budget(result: StepResult) -> int:
    return cuda_budget_bytes(lambda blocks: cast(TorchEngine, Trial(result)), INFO, LAYOUT)


@pytest.mark.usefixtures("left_on_device")
def test_the_budget_on_cuda_is_what_a_trial_leaves_and_its_own_memory_less_a_margin() -> None:
    assert budget(StepResult()) == 200 + 100 - 50


@pytest.mark.usefixtures("left_on_device")
def test_a_device_on_which_the_largest_step_does_not_fit_is_refused_with_what_to_do() -> None:
    with pytest.raises(EngineConfigurationError, match=r"one step of 264 tokens don't fit .*: lower HEADRACE_MAX_STEP"):
        budget(StepResult(deferred=frozenset({0})))
    with pytest.raises(EngineConfigurationError, match="a trial step failed: odd"):
        budget(StepResult(failures={0: "odd"}))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
def test_on_cuda_the_memory_is_what_weights_and_a_step_leave(model_directory: Directory) -> None:
    directory = model_directory("grouped")
    free, total = torch.cuda.mem_get_info()
    engine = load_torch_engine(directory, dtype="bfloat16", device="cuda", slots=1 << 14, max_context_tokens=512)
    assert 0.5 * free < engine.kv_bytes < free
    assert torch.cuda.mem_get_info()[0] > 0.02 * total
