"""What contract tests begin with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eventlog.admin import LogAdmin
from eventlog.producer import EventProducer
from eventlog.profile import BrokerProfile
from schemas.topics import Topics
from tests.brokers import Broker


@pytest.fixture(scope="module")
def profile(broker: Broker) -> BrokerProfile:
    return broker.profile


@pytest.fixture
def admin(profile: BrokerProfile) -> Iterator[LogAdmin]:
    with LogAdmin(profile, Topics()) as admin:
        admin.create_shared_topics()
        yield admin


@pytest.fixture
def producer(profile: BrokerProfile) -> Iterator[EventProducer]:
    with EventProducer(profile, client_id="test") as producer:
        yield producer
