"""`headrace schemas register` where nothing runs. With a log and a registry: tests/contract/test_schema_registry.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.cli import run


def test_where_nothing_runs_the_command_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("HEADRACE_DATA_DIR", str(tmp_path))
    monkeypatch.delenv("HEADRACE_KAFKA_BOOTSTRAP_SERVERS", raising=False)

    assert run(["schemas", "register"]) != 0
    assert "headrace up" in capsys.readouterr().err
