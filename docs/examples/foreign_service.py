"""A service that knows nothing of Headrace but its .avsc files: it submits one request and prints the answer.

    python docs/examples/foreign_service.py BOOTSTRAP_SERVERS TENANT MODEL PROMPT [AVRO_FOLDER]

Needs confluent-kafka and fastavro.
"""

import io
import json
import secrets
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import fastavro
from confluent_kafka import Consumer, Producer, TopicPartition
from fastavro.schema import fingerprint, to_parsing_canonical_form

PARTITION = 0  # of tokens.<tenant>: where the answer will be written


def new_request_id(partition: int) -> str:
    """A UUIDv7 whose last 16 bits are the partition of the token log."""
    value = (time.time_ns() // 1_000_000) << 80 | 0x7 << 76 | secrets.randbits(12) << 64
    return str(uuid.UUID(int=value | 0b10 << 62 | secrets.randbits(46) << 16 | partition))


def header_of(schema: dict[str, Any]) -> bytes:
    """Marker and CRC-64-AVRO fingerprint; fastavro's hex is in the header's byte order."""
    return b"\xc3\x01" + bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))


def main(servers: str, tenant: str, model: str, prompt: str, avro: str = "schemas/avro") -> None:
    schemas = [json.loads(path.read_text()) for path in sorted(Path(avro).glob("*.avsc"))]
    by_header = {header_of(schema): schema for schema in schemas}
    by_name = {schema["name"]: schema for schema in schemas}

    answers = Consumer({"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False})
    start, end = answers.get_watermark_offsets(TopicPartition(f"tokens.{tenant}", PARTITION), timeout=10)
    answers.assign([TopicPartition(f"tokens.{tenant}", PARTITION, max(start, end))])

    request_id, now_us = new_request_id(PARTITION), time.time_ns() // 1000
    request = {
        "request_id": request_id,
        "tenant": tenant,
        "at_us": now_us,
        "received_at_us": now_us,
        "source": "foreign-service",
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_output_tokens": 64,
        "temperature": 0.0,
    }
    body = io.BytesIO()
    fastavro.schemaless_writer(body, by_name["RequestSubmitted"], request)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "acks": "all"})
    producer.produce(
        f"requests.{tenant}", header_of(by_name["RequestSubmitted"]) + body.getvalue(), key=request_id.encode()
    )
    producer.flush(10)

    seen_tokens, seen_chars, attempt = 0, 0, 0
    while True:
        message = answers.poll(1.0)
        if message is None or message.error() or message.key() != request_id.encode():
            continue
        value = message.value() or b""
        schema = by_header[value[:10]]
        event: Any = fastavro.schemaless_reader(io.BytesIO(value[10:]), schema, None)
        if event.get("attempt", attempt) < attempt:
            continue  # a worker that does not know that another one took over
        attempt = event.get("attempt", attempt)
        if schema["name"] == "TokensGenerated" and event["index"] <= seen_tokens:
            print(event["text"][seen_chars - event["text_offset_chars"] :], end="", flush=True)
            seen_tokens = max(seen_tokens, event["index"] + len(event["token_ids"]))
            seen_chars = max(seen_chars, event["text_offset_chars"] + len(event["text"]))
        elif schema["name"] in {"GenerationFinished", "GenerationFailed", "RequestRejected"}:
            print(f"\n{schema['name']}: {event.get('finish_reason') or event.get('message')}")
            break
    answers.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
