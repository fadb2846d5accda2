"""What of the intake needs no broker; the rest is held by tests/contract/test_worker.py."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import SimpleQueue

import pytest
from confluent_kafka import KafkaError, TopicPartition

from eventlog.producer import EventProducer
from eventlog.profile import BrokerProfile
from gpu_consumers.intake import Intake
from gpu_consumers.metrics import WorkerMetrics
from gpu_consumers.settings import WorkerSettings

NOBODY = BrokerProfile("127.0.0.1:1", security={"log_level": "0"})
REFUSED = KafkaError(KafkaError.REBALANCE_IN_PROGRESS)


@pytest.fixture
def intake() -> Iterator[Intake]:
    with EventProducer(NOBODY, client_id="test") as producer:
        yield Intake(
            WorkerSettings(profile=NOBODY, deployment="d", worker_id="w"),
            producer,
            WorkerMetrics(deployment="d", worker="w"),
            inbox=SimpleQueue(),
            stop=threading.Event(),
            joined=lambda: None,
        )


@pytest.mark.parametrize("refused", [True, False])
def test_a_commit_that_the_broker_refused_is_made_again(intake: Intake, refused: bool) -> None:
    at = TopicPartition("work.d.t", 0, 1)
    intake._assigned(intake._consumer, [at])
    tracker = intake._partitions["work.d.t", 0].tracker
    tracker.take(0)
    tracker.done(0)
    assert tracker.to_commit() == 1
    intake._committed(REFUSED if refused else None, [at])
    assert tracker.to_commit() == (1 if refused else None)


def test_a_commit_of_a_partition_that_is_gone_concerns_nobody(intake: Intake) -> None:
    intake._committed(REFUSED, [TopicPartition("work.d.t", 0, 1)])
    assert intake._partitions == {}
