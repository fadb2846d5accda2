"""Fixtures that every folder of tests may use."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.brokers import Broker, NoRealBroker, running_broker

_CHOSEN = os.environ.get("HEADRACE_TEST_BROKER")

# No example has a time limit of its own: on a busy machine the quickest of them may take a second.
settings.register_profile("headrace", deadline=None)
settings.load_profile("headrace")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With HEADRACE_TEST_BROKER=real (`make test-integration`), only what uses a broker is worth running again."""
    if _CHOSEN != "real":
        return
    chosen = [item for item in items if _uses_a_broker(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = chosen


def _uses_a_broker(item: pytest.Item) -> bool:
    return item.get_closest_marker("integration") is not None or "broker" in getattr(item, "fixturenames", ())


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker for each file of tests (tests/brokers.py says which): what serves every tenant that its broker knows
    must not serve the half-made ones of other files. Within a file, tests share it and use tenants of their own.
    """
    try:
        with running_broker(tmp_path_factory.mktemp("broker")) as running:
            yield running
    except NoRealBroker as reason:
        pytest.exit(str(reason), returncode=1)


@pytest.fixture
def tenant_name() -> str:
    """A tenant that no other test has, so that tests on one broker do not see each other."""
    return f"t-{secrets.token_hex(5)}"


@pytest.fixture(autouse=True)
def _real_broker_for_integration_tests(request: pytest.FixtureRequest) -> None:
    """Tests marked `integration` make claims that only Apache Kafka can keep: skip them on the embedded broker."""
    if request.node.get_closest_marker("integration") is None:
        return
    if _CHOSEN == "embedded" or not request.getfixturevalue("broker").is_real:
        pytest.skip(
            "needs a real broker: HEADRACE_TEST_KAFKA, Docker, or KAFKA_HOME with Java 17+ (make test-integration)"
        )
