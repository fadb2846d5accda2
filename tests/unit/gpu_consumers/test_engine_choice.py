import sys
from pathlib import Path

import pytest

from eventlog.profile import BrokerProfile
from gpu_consumers.engine_choice import open_engine
from gpu_consumers.errors import DeploymentUnknownError, EngineConfigurationError
from gpu_consumers.settings import WorkerSettings
from schemas.events import ModelRegistered
from tests.tiny_model import make_tiny_model

SETTINGS = WorkerSettings(
    profile=BrokerProfile("127.0.0.1:1"), deployment="d", worker_id="w", slots=5, dtype="float32", max_step_tokens=33
)


def registered(engine: str, location: str = "bytes") -> ModelRegistered:
    return ModelRegistered(
        model_version="m@v1", at_us=1, deployment="d", engine=engine, location=location, tokenizer="bytes",
        context_tokens=100, default_max_output_tokens=10,
    )  # fmt: skip


def test_the_echo_engine_is_as_the_settings_and_the_registry_say() -> None:
    info = open_engine(registered("echo"), SETTINGS).info
    assert (info.name, info.slots, info.max_context_tokens, info.max_step_tokens) == ("echo", 5, 100, 33)


def test_the_torch_engine_is_opened_at_the_models_location(tmp_path: Path) -> None:
    info = open_engine(registered("torch", str(make_tiny_model(tmp_path))), SETTINGS).info
    assert (info.slots, info.max_context_tokens, info.max_step_tokens) == (5, 100, 33)


def test_the_vllm_engine_needs_its_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(EngineConfigurationError, match=r"not installed here: pip install 'headrace\[vllm\]'"):
        open_engine(registered("vllm", str(make_tiny_model(tmp_path))), SETTINGS)


def test_an_engine_that_nobody_has_is_a_clear_error() -> None:
    with pytest.raises(DeploymentUnknownError, match=r"m@v1 is registered with the engine 'abacus'; .* torch and vllm"):
        open_engine(registered("abacus"), SETTINGS)
