from dataclasses import replace

import pytest

from eventlog.record import Record
from gpu_consumers.work import UnexpectedRecord, understand
from schemas.codec import encode
from schemas.errors import ContractError, InvalidName, UndecodableEvent
from schemas.events import Event, RequestCancelled, RequestSubmitted
from schemas.ids import new_request_id
from schemas.topics import work_topic
from tests.unit.gpu_consumers.test_generation import ORDER

ID = new_request_id(now_ms=1, partition=3, entropy=5)
GOOD = replace(ORDER, request_id=ID)


def record(value: bytes) -> Record:
    return Record(work_topic("chat-v1", "t"), 0, 7, 0, b"k", value, [])


def read(value: bytes | Event) -> Event:
    return understand(
        record(value if isinstance(value, bytes) else encode(value)), deployment="chat-v1", token_partitions=4
    )


def test_orders_and_cancels_are_understood() -> None:
    cancel = RequestCancelled(request_id=ID, tenant="t", at_us=1, reason="client")
    assert read(GOOD) == GOOD
    assert read(cancel) == cancel


@pytest.mark.parametrize(
    ("value", "error", "why"),
    [
        (b"bytes", UndecodableEvent, "header"),
        (encode(GOOD)[:-3], UndecodableEvent, "corrupt"),
        (replace(GOOD, tenant="other"), UnexpectedRecord, "is of tenant 'other'"),
        (replace(GOOD, deployment="chat-v2"), UnexpectedRecord, "for deployment 'chat-v2'"),
        (replace(GOOD, request_id="7"), InvalidName, "not a request id"),
        (
            replace(GOOD, request_id=new_request_id(now_ms=1, partition=4, entropy=5)),
            UnexpectedRecord,
            "partition 4 of 4",
        ),
        (
            RequestSubmitted(
                request_id=ID, tenant="t", at_us=1, received_at_us=1, source="s", model="chat", messages=()
            ),
            UnexpectedRecord,
            "a RequestSubmitted in work.chat-v1.t",
        ),
    ],
)
def test_what_has_no_business_there_is_refused(value: bytes | Event, error: type[ContractError], why: str) -> None:
    with pytest.raises(error, match=why):
        read(value)
