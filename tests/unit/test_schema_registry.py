"""The tests' own schema registry: without one they are skipped, unless they are required."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.schema_registry import running_registry


@pytest.mark.parametrize("missing", ["a folder", "the jar", "Java"])
def test_without_one_a_test_is_skipped_or_fails_where_it_is_required(missing: str, tmp_path: Path) -> None:
    environment = {} if missing == "a folder" else {"HEADRACE_TEST_SCHEMA_REGISTRY_HOME": str(tmp_path)}
    if missing == "Java":
        (tmp_path / "apicurio-registry-app-1-runner.jar").touch()
        environment["JAVA_HOME"] = str(tmp_path)

    with pytest.raises(pytest.skip.Exception, match="Java 17"), running_registry(tmp_path, environment):
        pass
    environment["HEADRACE_REQUIRE_SCHEMA_REGISTRY"] = "1"
    with pytest.raises(pytest.fail.Exception, match="Java 17"), running_registry(tmp_path, environment):
        pass
