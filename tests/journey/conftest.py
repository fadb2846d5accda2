"""Journeys have a broker of their own: they serve every tenant that it knows, and other tests leave dozens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.brokers import Broker, NoRealBroker, running_broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    try:
        with running_broker(tmp_path_factory.mktemp("broker")) as running:
            yield running
    except NoRealBroker as reason:
        pytest.exit(str(reason), returncode=1)
