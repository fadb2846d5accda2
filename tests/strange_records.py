"""A record that no Kafka client of ours can write, but others can: with a header whose name is no UTF-8."""

from __future__ import annotations

import struct

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

_NAME = b"to-be-replaced"
_CRC_AT = 17


def strange_batch(values: list[bytes]) -> bytes:
    """A batch of records with such a header each, as a broker takes and gives it."""
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=1_000_000,
    )  # fmt: skip
    for number, value in enumerate(values):
        builder.append(number, timestamp=1_796_000_000_000, key=b"k", value=value, headers=[(_NAME.decode(), b"v")])
    batch = bytearray(bytes(builder.build()).replace(_NAME, b"\xff\xfe" + _NAME[2:]))
    batch[_CRC_AT : _CRC_AT + 4] = struct.pack(">I", calc_crc32c(bytes(batch[_CRC_AT + 4 :])))
    return bytes(batch)


async def write_strange_records(bootstrap_servers: str, topic: str, partition: int, values: list[bytes]) -> None:
    """Without any client's own checks; the broker has taken them when this returns."""
    client = AIOKafkaClient(bootstrap_servers=bootstrap_servers)
    await client.bootstrap()
    try:
        await client.set_topics([topic])
        node = client.cluster.leader_for_partition(TopicPartition(topic, partition))
        request = ProduceRequest(
            transactional_id=None, required_acks=-1, timeout=10_000,
            topics=[(topic, [(partition, strange_batch(values))])],
        )  # fmt: skip
        answer = await client.send(node, request)
        ((_, ((_, error_code, *_),)),) = answer.topics
        assert error_code == 0
    finally:
        await client.close()
