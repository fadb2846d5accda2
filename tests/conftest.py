"""Fixtures that every folder of tests may use."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator

import pytest

from tests.brokers import Broker, NoRealBroker, running_broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for the whole run (tests/brokers.py says which); tests share it and use tenants of their own."""
    try:
        with running_broker(tmp_path_factory.mktemp("broker")) as running:
            yield running
    except NoRealBroker as reason:
        pytest.skip(str(reason))


@pytest.fixture
def tenant_name() -> str:
    """A tenant that no other test has, so that tests on one broker do not see each other."""
    return f"t-{secrets.token_hex(5)}"


@pytest.fixture(autouse=True)
def _real_broker_for_integration_tests(request: pytest.FixtureRequest) -> None:
    """Tests marked `integration` make claims that only Apache Kafka can keep: skip them on the embedded broker."""
    if request.node.get_closest_marker("integration") is None:
        return
    if os.environ.get("HEADRACE_TEST_BROKER") == "embedded" or not request.getfixturevalue("broker").is_real:
        pytest.skip(
            "needs a real broker: HEADRACE_TEST_KAFKA, Docker, or KAFKA_HOME with Java 17+ (make test-integration)"
        )
