"""A service that knows nothing of Headrace but its .avsc files: it submits one request and prints the answer.

    python docs/examples/foreign_service.py BOOTSTRAP_SERVERS TENANT MODEL PROMPT [AVRO_FOLDER...]

Writes with the schemas of the first folder, and reads what was written with any of them. Needs confluent-kafka and
fastavro.
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
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from fastavro.schema import fingerprint, to_parsing_canonical_form


def header_of(schema: dict[str, Any]) -> bytes:
    """Marker and CRC-64-AVRO fingerprint; fastavro's hex is in the header's byte order."""
    return b"\xc3\x01" + bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))


class Schemas:
    """The published events: by name, to write; by the header that their bytes begin with, to read."""

    def __init__(self, folder: str, *more_to_read: str) -> None:
        self._by_name = {schema["name"]: schema for schema in schemas_in(folder)}
        readable = [*self._by_name.values(), *(schema for other in more_to_read for schema in schemas_in(other))]
        self._by_header = {header_of(schema): schema for schema in readable}

    def encode(self, name: str, event: dict[str, Any]) -> bytes:
        body = io.BytesIO()
        fastavro.schemaless_writer(body, self._by_name[name], event)
        return header_of(self._by_name[name]) + body.getvalue()

    def decode(self, value: bytes) -> tuple[str, Any]:
        """Name and fields. A KeyError is an event of a release whose .avsc files are not in the folders."""
        schema = self._by_header[value[:10]]
        return schema["name"], fastavro.schemaless_reader(io.BytesIO(value[10:]), schema, None)


def schemas_in(folder: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text("utf-8")) for path in sorted(Path(folder).glob("*.avsc"))]


def new_request_id(partition: int) -> str:
    """A UUIDv7 whose last 16 bits are the partition of the token log."""
    value = (time.time_ns() // 1_000_000) << 80 | 0x7 << 76 | secrets.randbits(12) << 64
    return str(uuid.UUID(int=value | 0b10 << 62 | secrets.randbits(46) << 16 | partition))


def submitted(request_id: str, tenant: str, model: str, prompt: str) -> dict[str, Any]:
    """RequestSubmitted; what is left out takes its default."""
    now_us = time.time_ns() // 1000
    return {
        "request_id": request_id,
        "tenant": tenant,
        "at_us": now_us,
        "received_at_us": now_us,
        "source": "foreign-service",
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_output_tokens": 64,
        "temperature": 0.0,
        "deadline_at_us": now_us + 60_000_000,  # no worker goes on past it
    }


def type_of(message: Message) -> str:
    """Name of the event, without decoding it."""
    headers: dict[str, Any] = dict(message.headers() or [])
    return str(headers["ce_type"], "utf-8").removeprefix("headrace.v1.")


# What an Answer reads. Newer releases may write more: it passes over that, and need not decode it.
READ = {"RequestAdmitted", "RequestRejected", "GenerationStarted", "TokensGenerated", "GenerationFinished",
        "GenerationFailed"}  # fmt: skip


class Answer:
    """The fold of one request's token log: `take` its events in log order; each token counts once."""

    def __init__(self) -> None:
        self.attempt = self.tokens = self.chars = 0
        self.admitted = False
        self.end: str | None = None  # how it ended

    def take(self, name: str, event: Any) -> str:
        """The text that this event adds."""
        if name == "RequestAdmitted":
            self.admitted = True
        elif name == "RequestRejected":
            if not self.admitted and not self.attempt:  # else it is a late duplicate
                self.end = f"{name}: {event['status']} {event['code']}: {event['message']}"
        elif event["attempt"] >= self.attempt:  # else its worker does not know that another one took over
            self.attempt = event["attempt"]
            if name == "GenerationFinished":
                self.end = f"{name}: {event['finish_reason']}"
            elif name == "GenerationFailed":
                self.end = f"{name}: {event['status']} {event['code']}: {event['message']}"
            elif name == "TokensGenerated":
                return self._text_of(event)
        return ""

    def _text_of(self, event: Any) -> str:
        if event["index"] > self.tokens or event["text_offset_chars"] > self.chars:
            return ""  # a gap: only a successor can be right
        text: str = event["text"][self.chars - event["text_offset_chars"] :]
        self.tokens = max(self.tokens, event["index"] + len(event["token_ids"]))
        self.chars += len(text)
        return text


def main(servers: str, tenant: str, model: str, prompt: str, *avro: str) -> None:
    schemas, topic = Schemas(*(avro or ["schemas/avro"])), f"tokens.{tenant}"
    log = Consumer({"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False})
    partitions = len(log.list_topics(topic, timeout=10).topics[topic].partitions)
    if not partitions:
        sys.exit(f"there is no tenant {tenant}")
    partition = secrets.randbelow(partitions)

    # Where the log ends now is before the answer: nothing of it can be missed.
    start, end = log.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
    log.assign([TopicPartition(topic, partition, max(start, end))])

    request_id = new_request_id(partition)
    value = schemas.encode("RequestSubmitted", submitted(request_id, tenant, model, prompt))
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    producer.produce(f"requests.{tenant}", value, key=request_id.encode())
    if producer.flush(10):
        sys.exit("the broker did not acknowledge the request; it may still have it")

    answer = Answer()
    while answer.end is None:
        message = log.poll(1.0)
        if message is None or message.error() or message.key() != request_id.encode():
            continue
        if type_of(message) in READ:
            print(answer.take(*schemas.decode(message.value() or b"")), end="", flush=True)
    print(f"\n{answer.end}")
    log.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
