"""A foreign service with many requests: it knows the .avsc files, the topic table and raw bytes, nothing else of ours.

    PYTHONPATH=docs/examples python tests/foreign_hundred.py SERVERS TENANT COUNT AVRO_FOLDER...

It submits COUNT requests at once, over all partitions, and reads all answers. Of ten, one asks for a model that there
is not, and one is cancelled right behind its submission. Prints what it got as JSON: for each request its prompt, text
and end; and the files of all modules that it has imported.
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from foreign_service import READ, Answer, Schemas, new_request_id, submitted, type_of


def main(servers: str, tenant: str, count: str, *avro: str) -> None:
    schemas, topic = Schemas(*avro), f"tokens.{tenant}"
    log = Consumer({"bootstrap.servers": servers, "group.id": "unused", "fetch.wait.max.ms": 5})
    partitions = sorted(log.list_topics(topic, timeout=10).topics[topic].partitions)
    ends = [log.get_watermark_offsets(TopicPartition(topic, partition), timeout=10) for partition in partitions]
    log.assign([TopicPartition(topic, *place) for place in zip(partitions, map(max, ends), strict=True)])

    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    prompts: dict[str, str] = {}
    for number in range(int(count)):
        request_id = new_request_id(partitions[number % len(partitions)])
        prompts[request_id] = f"request {number} "
        model = "no-such-model" if number % 10 == 3 else "echo"
        request = submitted(request_id, tenant, model, prompts[request_id])
        producer.produce(f"requests.{tenant}", schemas.encode("RequestSubmitted", request), key=request_id.encode())
        if number % 10 == 7:
            now_us = time.time_ns() // 1000
            cancel = {"request_id": request_id, "tenant": tenant, "at_us": now_us, "reason": "client"}
            producer.produce(f"requests.{tenant}", schemas.encode("RequestCancelled", cancel), key=request_id.encode())
    assert producer.flush(10) == 0

    answers = {request_id: Answer() for request_id in prompts}
    texts = dict.fromkeys(prompts, "")
    while any(answer.end is None for answer in answers.values()):
        message = log.poll(1.0)
        if message is None or message.error():
            continue
        request_id = (message.key() or b"").decode()
        if request_id in answers and answers[request_id].end is None and type_of(message) in READ:
            name, event = schemas.decode(message.value() or b"")
            assert name == type_of(message)
            texts[request_id] += answers[request_id].take(name, event)
    log.close()
    got = [
        {"prompt": prompts[request_id], "text": texts[request_id], "end": answer.end}
        for request_id, answer in answers.items()
    ]
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    print(json.dumps({"answers": got, "modules": [file for file in files if file]}))


main(*sys.argv[1:])
