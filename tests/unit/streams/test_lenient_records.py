"""aiokafka's reader, with header names that are no UTF-8."""

from __future__ import annotations

from typing import Any

from aiokafka import TopicPartition
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from streams.lenient_records import LenientPartitionRecords, _KeptRecords
from tests.strange_records import strange_batch

AT = TopicPartition("t", 0)


def batch_of(values: list[bytes], compression: int) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=compression, is_transactional=0, producer_id=-1, producer_epoch=-1,
        base_sequence=-1, batch_size=1_000_000,
    )  # fmt: skip
    for number, value in enumerate(values):
        builder.append(number, timestamp=5, key=None, value=value, headers=[("colour", b"blue")])
    return bytes(builder.build())


def moved(batch: bytes, offset: int) -> bytes:
    """As the broker gives it: the offset is no part of what the checksum covers."""
    return offset.to_bytes(8, "big") + batch[8:]


def read(data: bytes, fetch_offset: int = 0) -> list[Any]:
    return list(LenientPartitionRecords(AT, _KeptRecords(data), None, fetch_offset, None, None, True, 0))


def test_records_come_once_and_in_order_whichever_of_them_are_strange() -> None:
    data = b"".join(
        [
            moved(batch_of([b"a", b"b"], 3), 0),
            moved(strange_batch([b"c", b"d"]), 2),
            moved(batch_of([b"e"], 3), 4),
            moved(strange_batch([b"f"]), 5),
            moved(batch_of([b"g"], 0), 6),
        ]
    )
    records = read(data)
    assert [record.offset for record in records] == list(range(7))
    assert b"".join(record.value for record in records) == b"abcdefg"
    assert records[0].headers == (("colour", b"blue"),)
    assert records[2].headers == (("\\xff\\xfe-be-replaced", b"v"),)
    assert records[6].headers == (("colour", b"blue"),)


def test_a_fetch_in_the_middle_of_a_strange_batch_gives_what_is_asked_for() -> None:
    records = read(moved(strange_batch([b"c", b"d"]), 2), fetch_offset=3)
    assert [(record.offset, record.value) for record in records] == [(3, b"d")]


def test_ordinary_records_go_through_the_fast_reader() -> None:
    records = LenientPartitionRecords(AT, _KeptRecords(batch_of([b"a"], 0)), None, 0, None, None, True, 0)
    assert [record.value for record in records] == [b"a"]
    assert isinstance(records._records, _KeptRecords)
