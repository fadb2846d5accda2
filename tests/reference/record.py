"""Records the run behind docs/event-reference.md: starts the system, gives it a request for each ending, reads the log.

The records are taken as they were written. Only the names of this machine and of its folders are replaced by others.
"""

from __future__ import annotations

import asyncio
import getpass
import json
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from confluent_kafka.admin import AdminClient
from websockets.asyncio.client import connect

from eventlog.producer import EventProducer
from eventlog.reader import LogReader
from schemas.events import EVENT_TYPES
from schemas.topics import CONTROL_SCHEMAS, TELEMETRY, kind_of, requests_topic
from tests.brokers import Broker, running_broker
from tests.journey.system import System, running_system
from tests.reference.story import Told, dump, in_order
from tests.schema_registry import running_registry
from tests.timing import eventually

TENANT = "demo"
MODEL = "smollm2"
WARM_UP = "Warm up: this request is not recorded."
ABOUT = "What docs/event-reference.md shows piece by piece, recorded by `python -m tests.reference --record`."
CACHE = Path("~/.cache/headrace").expanduser()
ENDED = frozenset({"response.completed", "response.incomplete", "response.cancelled", "response.failed"})
POISON_KEY = b"invoice-7"
ONE_OF_EACH = (TELEMETRY.name, CONTROL_SCHEMAS.name)


def record() -> str:
    """The text of docs/life-of-a-request.json.

    Takes a minute. Needs SmolLM2, which `make demo` caches, and a schema registry (tests/schema_registry.py).
    """
    with tempfile.TemporaryDirectory() as name, running_broker(Path(name)) as broker:
        directory = Path(name)
        with (
            running_registry(directory) as registry,
            running_system(
                broker,
                directory,
                HEADRACE_MODEL=MODEL,
                HEADRACE_FRAMING="single-object",
                HEADRACE_SCHEMA_REGISTRY_URL=registry.address.url,
            ) as system,
        ):
            _live(system, broker)
            told = eventually(lambda: _whole(_read(broker)), "every event has come", 60)
            return _without_this_machine(dump(told, ABOUT), system)


def _live(system: System, broker: Broker) -> None:
    key = json.loads((system.data_dir / "credentials.json").read_text())["api_key"]
    ask = Ask(system, key)
    eventually(lambda: "\nReady." in (system.data_dir.parent / "up.log").read_text(), "the worker is ready", 180)
    ask.until_the_end(model=MODEL, input=WARM_UP, max_output_tokens=2)
    ask.until_the_end(model=MODEL, input="What is a river?", max_output_tokens=16, temperature=0)
    ask.until_the_end(model="no-such-model", input="What is a river?")
    ask.and_cancel(model=MODEL, input="Count from one to one hundred.", temperature=0)
    _fail(system, ask)
    _administer(system)
    _poison(system, broker)


class Ask:
    """Sends requests over a WebSocket, as a client does."""

    def __init__(self, system: System, key: str) -> None:
        self._url = f"ws://{urlsplit(system.gateway_url).netloc}/v1/responses"
        self._headers = {"Authorization": f"Bearer {key}"}

    def until_the_end(self, **parameters: Any) -> None:
        asyncio.run(self._ask(parameters, cancel_after=None))

    def and_cancel(self, **parameters: Any) -> None:
        """Cancel it in the middle of the answer."""
        asyncio.run(self._ask(parameters, cancel_after=4))

    async def _ask(self, parameters: dict[str, Any], cancel_after: int | None) -> None:
        deltas = 0
        async with connect(self._url, additional_headers=self._headers) as client:
            await client.send(json.dumps({"type": "response.create", **parameters}))
            async for frame in client:
                event = json.loads(frame)
                if event["type"] == "error":
                    raise RuntimeError(str(frame))
                deltas += event["type"] == "response.output_text.delta"
                if deltas == cancel_after:
                    cancel = {"type": "response.cancel", "response_id": event["response_id"]}
                    await client.send(json.dumps(cancel))
                if event["type"] in ENDED:
                    return


def _fail(system: System, ask: Ask) -> None:
    """A model that was registered with another one's tokenizer."""
    tokenizer = CACHE / "SmolLM2-135M-Instruct"
    system.headrace("models", "add", "draft@v1", "--engine", "echo", "--tokenizer", str(tokenizer))
    system.headrace("routes", "set", "draft", "draft@v1", "--reason", "a draft to try")
    environment = {**system.environment, "HEADRACE_MODEL": "draft@v1"}
    with (system.data_dir / "logs" / "worker-draft.log").open("wb") as log:
        worker = [sys.executable, "-m", "infra.cli", "worker"]
        system.processes.append(subprocess.Popen(worker, env=environment, stdout=log, stderr=subprocess.STDOUT))
    ask.until_the_end(model="draft", input="What is a river?")


def _administer(system: System) -> None:
    key = system.add_tenant("acme")
    system.headrace("keys", "revoke", key.split("_")[1])
    adapter = ("support-tone@v2", "--model", f"{MODEL}@v1", "--location", str(CACHE / "support-tone"), "--unchecked")
    system.headrace("adapters", "add", *adapter)
    system.headrace("schemas", "register")


def _poison(system: System, broker: Broker) -> None:
    """A message of a service that speaks JSON; someone tries it again, though nobody reads JSON yet."""
    with EventProducer(broker.profile, client_id="billing") as producer:
        producer.send_bytes(requests_topic(TENANT), b'{"prompt": "What is a river?"}', key=POISON_KEY, headers=[])
    letters = eventually(lambda: system.headrace("dead-letters", "list").splitlines()[1:], "it is a dead letter", 20)
    system.headrace("dead-letters", "requeue", "--force", letters[0].split("\t")[0])


def _read(broker: Broker) -> list[Told]:
    """Every event of every topic of ours, by time."""
    topics = AdminClient(broker.profile.client("recorder-topics")).list_topics(timeout=10).topics
    with LogReader(broker.profile, client_id="recorder") as reader:
        starts = {
            (name, partition): 0
            for name, topic in topics.items()
            if kind_of(name) is not None
            for partition in topic.partitions
        }
        told = [Told.of(found) for found in reader.read_to_end(starts) if found.key != POISON_KEY]
    return sorted(told, key=in_order)


def _whole(told: list[Told]) -> list[Told] | None:
    """What is kept of the run, once all that it must have has come."""
    kept = _chosen(told)
    return kept if {one.name for one in kept} == {event_type.__name__ for event_type in EVENT_TYPES} else None


def _chosen(told: list[Told]) -> list[Told]:
    """All but the warm-up, and one of each kind of what is there by the dozen."""
    warm_up = {one.request_id for one in told if one.name == "RequestSubmitted" and WARM_UP in str(one.fields)}
    kept: list[Told] = []
    shown: set[str] = set()
    for one in told:
        if one.request_id is not None and one.request_id in warm_up:
            continue
        if one.topic in ONE_OF_EACH:
            if one.name in shown or not _tells_something(one):
                continue
            shown.add(one.name)
        kept.append(one)
    return kept


def _tells_something(one: Told) -> bool:
    """A report of work that was done; the schema that a reader meets most."""
    did = ("output_tokens", "points", "sent_events")
    return one.fields.get("subject") == "headrace.v1.TokensGenerated" or any(one.fields.get(name) for name in did)


def _without_this_machine(text: str, system: System) -> str:
    host = socket.gethostname()
    for found, instead in (
        (str(CACHE), "/models"),
        (str(system.data_dir), "/data"),
        (f"{getpass.getuser()}@{host}", "operator@host-1"),
        (f"-{host}-", "-host-1-"),
    ):
        text = text.replace(found, instead)
    return text
