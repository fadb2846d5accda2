"""`headrace schemas register` without what it needs. With it: tests/contract/test_schema_registry.py."""

from __future__ import annotations

import pytest

from infra.cli import run


def test_without_a_schema_registry_the_command_says_which_setting_names_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HEADRACE_SCHEMA_REGISTRY_URL", raising=False)

    assert run(["schemas", "register"]) == 2
    assert "HEADRACE_SCHEMA_REGISTRY_URL" in capsys.readouterr().err
