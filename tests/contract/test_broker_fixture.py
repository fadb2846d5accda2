"""What tests may count on from any broker they are given."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from tests.brokers import Broker
from tests.timing import within


def test_the_broker_answers_a_metadata_request_with_itself(broker: Broker) -> None:
    metadata = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=within(10))

    assert broker.bootstrap_servers in {f"{node.host}:{node.port}" for node in metadata.brokers.values()}


@pytest.mark.integration
def test_an_integration_test_gets_apache_kafka(broker: Broker) -> None:
    assert broker.is_real
