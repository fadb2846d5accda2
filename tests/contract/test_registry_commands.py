"""The registry commands against a broker: what one command writes, the next one shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infra.cli import run
from schemas.api_keys import key_id_of
from tests.brokers import Broker

ELSEWHERE = ["--location", "/on/the/workers", "--unchecked"]


@pytest.fixture(autouse=True)
def _settings_of_the_broker(broker: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEADRACE_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("HEADRACE_KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    monkeypatch.setenv("HEADRACE_BROKER", broker.profile.kind)


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(arguments) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(arguments) in (1, 2)
    return capsys.readouterr().err


def test_a_tenant_is_added_gets_a_key_and_loses_it(capsys: pytest.CaptureFixture[str], tenant_name: str) -> None:
    assert tenant_name in shown(capsys, "tenants", "add", tenant_name, "--requests-per-minute", "7")
    assert f"{tenant_name}\t7\t200000\t64\t1.0" in shown(capsys, "tenants", "list")

    key_id = key_id_of(shown(capsys, "keys", "add", tenant_name, "--name", "laptop").strip())
    assert key_id is not None
    assert f"{key_id}\t{tenant_name}\tlaptop" in shown(capsys, "keys", "list")

    assert key_id in shown(capsys, "keys", "revoke", key_id)
    assert key_id not in shown(capsys, "keys", "list")
    assert "no key with the id" in refused(capsys, "keys", "revoke", key_id)


def test_a_model_is_added_and_an_alias_resolves_to_it(capsys: pytest.CaptureFixture[str], tenant_name: str) -> None:
    version = f"{tenant_name}@v1"
    assert "worker --model" in shown(capsys, "models", "add", version, "--engine", "echo")
    assert f"{version}\t{tenant_name}-v1\techo\t8192\techo" in shown(capsys, "models", "list")

    shown(capsys, "routes", "set", tenant_name, version)
    assert f"{tenant_name}\t{version} 100%" in shown(capsys, "routes", "list")


def test_an_adapter_is_added_for_a_model_that_is_there(
    capsys: pytest.CaptureFixture[str], tenant_name: str, tmp_path: Path
) -> None:
    model, adapter = f"{tenant_name}@v1", f"tone-{tenant_name}@v2"
    add = ["adapters", "add", adapter, "--model", model, "--location", str(tmp_path)]
    assert "it has no adapter_config.json" in refused(capsys, *add)
    (tmp_path / "adapter_model.safetensors").touch()
    plain = {"peft_type": "LORA", "r": 8, "lora_alpha": 16}
    for options, reason in (
        ({"use_dora": True}, "it is a DoRA adapter (use_dora), which is not supported"),
        ({"bias": "lora_only"}, "it has biases (bias is 'lora_only'), which is not supported"),
        ({"modules_to_save": ["lm_head"]}, "it replaces whole modules (modules_to_save), which is not supported"),
    ):
        (tmp_path / "adapter_config.json").write_text(json.dumps(plain | options))
        assert reason in refused(capsys, *add)
    (tmp_path / "adapter_config.json").write_text(json.dumps(plain | {"use_rslora": True}))
    assert f"there is no model version {model!r}" in refused(capsys, *add)
    shown(capsys, "models", "add", model, "--engine", "echo")
    assert f"{adapter} is registered for {model}." in shown(capsys, *add)
    assert f"{adapter}\t{model}\tall\t{tmp_path}" in shown(capsys, "adapters", "list")

    assert "there is no tenant 'nobody-at-all'" in refused(capsys, *add, "--tenant", "nobody-at-all")
    shown(capsys, "tenants", "add", tenant_name)
    shown(capsys, *add, "--tenant", tenant_name)
    assert f"{adapter}\t{model}\t{tenant_name}\t{tmp_path}" in shown(capsys, "adapters", "list")

    assert "a model version goes by this name" in refused(capsys, *add[:2], model, *add[3:])
    assert f"an adapter goes by the name {adapter!r}" in refused(capsys, "models", "add", adapter, "--engine", "echo")
    elsewhere = ["adapters", "add", f"far-{adapter}", "--model", model, "--location", "/on/the/workers", "--unchecked"]
    assert "is registered" in shown(capsys, *elsewhere)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["tenants", "add", "Not.A.Name"], "is not a tenant name"),
        (["keys", "add", "nobody-at-all"], "there is no tenant 'nobody-at-all'"),
        (["models", "add", "no-version", "--engine", "echo"], "name@version"),
        (["models", "add", "chat@v1"], "--location is needed"),
        (["models", "add", "chat@v1", "--location", "/nowhere"], "there is no such folder"),
        (["routes", "set", "chat", "nothing@v9"], "there is no model version 'nothing@v9'"),
        (["routes", "set", "chat@v1", "nothing@v9"], "an alias has no @ in it"),
        (["adapters", "add", "tone", *ELSEWHERE, "--model", "chat@v1"], "'tone' is not a pinned version"),
        (["adapters", "add", "acme/tone@v1", *ELSEWHERE, "--model", "chat@v1"], "is not a pinned version"),
        (["adapters", "add", "tone@v1", *ELSEWHERE, "--model", "chat"], "'chat' is not a pinned version"),
        (["adapters", "add", "tone@v1", "--location", "/nowhere", "--model", "chat@v1"], "there is no such folder"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(
    capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str
) -> None:
    assert problem in refused(capsys, *arguments)
