from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
import torch

from gpu_consumers.engines.echo import EchoEngine
from gpu_consumers.engines.torch import load_torch_engine
from gpu_consumers.errors import EngineConfigurationError
from gpu_consumers.generation import Model
from gpu_consumers.profiling.advice import Setup
from gpu_consumers.profiling.load import Load
from gpu_consumers.profiling.loop import Until
from gpu_consumers.profiling.run import Options, Profile, run_profile
from gpu_consumers.profiling.verdict import Bound
from gpu_consumers.profiling.weights import model_costs
from models.tokenizer import ByteTokenizer, open_tokenizer
from tests.tiny_model import make_tiny_model

ECHO = Setup("echo", slots=4, dtype="bytes", on_cpu=True, threads=1)


def profile_echo(load: Load, until: Until, tokens_per_second: float = 0.0) -> Profile:
    return run_profile(
        EchoEngine(slots=4, tokens_per_second=tokens_per_second), Model(ByteTokenizer(), frozenset()), load, ECHO,
        Options("cpu", until, observed=False), name="echo", costs=None, clock=time.monotonic,
        wait=threading.Event().wait,
    )  # fmt: skip


DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here"),
        ],
    ),
]


@pytest.mark.parametrize("device", DEVICES)
def test_a_torch_engine_is_profiled_with_all_its_evidence(tmp_path: Path, device: str) -> None:
    directory = make_tiny_model(tmp_path / "model")
    engine = load_torch_engine(directory, dtype="float32", slots=4, max_context_tokens=128, device=device)
    told: list[str] = []
    profile = run_profile(
        engine, Model(open_tokenizer(str(directory)), frozenset()), Load(16, 8, concurrency=4),
        Setup("torch", slots=4, dtype="float32", on_cpu=device == "cpu", threads=1),
        Options(device, Until(seconds=20, requests=4), trace=tmp_path / "trace.json"), name="tiny",
        costs=model_costs(directory, "float32"), clock=time.monotonic, wait=threading.Event().wait, told=told.append,
    )  # fmt: skip
    assert profile.finished_requests >= 4
    assert profile.found.reference is not None
    assert profile.found.verdict.floor is not None
    assert profile.found.summary.parts["forward"] > 0
    assert profile.found.operators
    assert profile.advice
    assert [point.label for point in profile.points] == ["steps that decode", "steps that prefill"]
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert len(told) == 3
    assert engine.kv_use().used_tokens == 0, "the slots are free again"
    engine.close()


def test_an_echo_that_waits_for_requests_is_input_bound() -> None:
    assert profile_echo(Load(4, 2, rate=20.0), Until(0.5)).found.verdict.bound is Bound.INPUT


def test_an_echo_without_a_pace_is_all_scheduler_and_with_one_all_engine() -> None:
    load = Load(8, 8, concurrency=4)
    assert profile_echo(load, Until(20.0, requests=30)).found.verdict.bound is Bound.SCHEDULER
    assert profile_echo(load, Until(20.0, steps=8), tokens_per_second=50).found.verdict.bound is Bound.ENGINE


def test_a_load_that_does_not_fit_is_refused_before_anything_runs() -> None:
    with pytest.raises(EngineConfigurationError, match="do not fit into the 8192 tokens"):
        profile_echo(Load(8192, 64), Until(1.0))


def test_a_window_without_a_request_is_a_clear_error() -> None:
    with pytest.raises(EngineConfigurationError, match="raise --rate or --seconds"):
        profile_echo(Load(8, 8, rate=1.0), Until(0.0))
