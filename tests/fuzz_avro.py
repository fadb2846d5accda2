"""`python -m tests.fuzz_avro --count 100000 --seed 1`: hostile payloads through the codec, in both framings.

Each one must give an event whose fields all have their types, or a ContractError, within SLOWEST_SECONDS. They
run in a process of their own, so that a crash and a hang are findings too, and so that the peak of its memory over
where it began is what the payloads took: it bounds each of them. Linux only, for /proc.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import typing
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from schemas.catalog import published_schema, released_schemas, single_object_header
from schemas.codec import Codec, confluent_header
from schemas.errors import ContractError
from schemas.events import EVENT_TYPES, Event
from schemas.plain_schema import without_logical_types
from tests.hostile_avro import Payload, Writer, payloads
from tests.hostile_schemas import ENDLESS, HOSTILE, foreign

MAX_TAKEN_BYTES = 64 * 1024 * 1024
SLOWEST_SECONDS = 20
"""Nothing takes a tenth of this on a busy machine: only a hang does."""

FOREIGN_SCHEMAS = 300
ADDRESS_SPACE_BYTES = 1 << 30  # over what the process has when it begins: what goes past it is refused memory


@dataclass
class Summary:
    """What became of the payloads.

    findings: what must not be, as text.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    slowest_ms: float = 0.0
    slowest: str = ""
    taken_bytes: int = 0
    taken_by: str = ""

    @property
    def count(self) -> int:
        return sum(self.outcomes.values())


def fuzz(count: int, seed: int) -> Summary:
    """Run the payloads in a process of their own. A crash or a hang of it is a finding."""
    with tempfile.TemporaryDirectory() as directory:
        marker, result = Path(directory, "marker"), Path(directory, "result.json")
        command = [sys.executable, "-m", "tests.fuzz_avro", "--count", str(count), "--seed", str(seed)]
        ended = subprocess.run(
            [*command, "--marker", str(marker), "--result", str(result)], check=False, stderr=subprocess.PIPE, text=True
        )
        if ended.returncode == 0:
            read = json.loads(result.read_text())
            return Summary(**{**read, "outcomes": Counter(read["outcomes"]), "kinds": Counter(read["kinds"])})
        last = marker.read_text() if marker.exists() else "before the first payload"
        how = f"ended with {ended.returncode} at {last}: {ended.stderr[-2000:]}"
        return Summary(findings=[f"the reader's process {how}"])


def writers_of(codec: Codec, seed: int) -> list[Writer]:
    """Every schema that a reader may meet, in each framing that it comes in; the codec learns the ids."""
    found = []
    known = [avro for _, avro in released_schemas()] + [published_schema(event_type) for event_type in EVENT_TYPES]
    for schema_id, avro in enumerate(known):
        plain = without_logical_types(avro)
        codec.learn_ours(schema_id, single_object_header(avro)[2:].hex())
        found += [Writer(single_object_header(avro), plain), Writer(confluent_header(schema_id), plain)]
    for schema_id, (name, schema) in enumerate(_foreign_schemas(seed), start=1000):
        try:
            codec.learn(schema_id, schema)
        except ContractError:
            continue
        found.append(Writer(confluent_header(schema_id), schema, is_endless=name in ENDLESS))
    return found


def _foreign_schemas(seed: int) -> Iterator[tuple[str, Any]]:
    yield from HOSTILE.items()
    rng = random.Random(seed)
    for _ in range(FOREIGN_SCHEMAS):
        ours = published_schema(rng.choice(EVENT_TYPES))
        yield "foreign", foreign(rng, json.loads(json.dumps(ours)))


def run_here(count: int, seed: int, marker: Path) -> Summary:
    """The payloads, in this process. marker: always says which one is being tried."""
    codec = Codec("confluent")
    writers = writers_of(codec, seed)
    summary = Summary()
    began_at = _memory_bytes("VmRSS")
    _limit_address_space()
    with marker.open("wb", buffering=0) as place:
        for index, payload in enumerate(payloads(seed, count, writers)):
            os.pwrite(place.fileno(), f"payload {index:9} of seed {seed}: {payload.kind:40}".encode(), 0)
            _try(codec, payload, index, summary)
            taken = _memory_bytes("VmHWM") - began_at
            if taken > summary.taken_bytes:
                summary.taken_bytes, summary.taken_by = taken, f"{payload.kind}, payload {index}"
    if summary.taken_bytes > MAX_TAKEN_BYTES:
        summary.findings.append(f"{summary.taken_bytes} bytes of memory: {summary.taken_by}")
    return summary


def _try(codec: Codec, payload: Payload, index: int, summary: Summary) -> None:
    signal.setitimer(signal.ITIMER_REAL, SLOWEST_SECONDS)  # ends the process
    begin = time.perf_counter()
    try:
        event = codec.decode(payload.data)
        wrong = wrong_fields(event)
        outcome = "event" if not wrong else "event with wrong fields"
    except ContractError as error:
        outcome = error.code
        wrong = ["ran out of memory"] if isinstance(error.__cause__, MemoryError) else []
    except Exception as error:
        outcome, wrong = "untyped error", [repr(error)[:300]]
    took_ms = (time.perf_counter() - begin) * 1e3
    signal.setitimer(signal.ITIMER_REAL, 0)
    summary.outcomes[outcome] += 1
    summary.kinds[payload.kind] += 1
    summary.findings += [f"payload {index}, {payload.kind}: {what}" for what in wrong]
    if took_ms > summary.slowest_ms:
        summary.slowest_ms, summary.slowest = took_ms, f"{payload.kind}, payload {index}"


def wrong_fields(event: Event) -> list[str]:
    """What an event has that its class does not promise: fields missing, too many, or of another type."""
    return list(_wrong(event, type(event), without_logical_types(published_schema(type(event))), type(event).__name__))


def _wrong(value: Any, hint: Any, avro_type: Any, path: str) -> Iterator[str]:
    arguments = typing.get_args(hint)
    origin = typing.get_origin(hint)
    if type(None) in arguments:
        if value is not None:
            yield from _wrong(value, arguments[0], avro_type[1], path)
    elif origin is tuple:
        if type(value) is not tuple:
            yield f"{path} is a {type(value).__name__}"
        else:
            for item in value:
                yield from _wrong(item, arguments[0], avro_type["items"], f"{path}[]")
    elif origin is Mapping:
        for key, item in value.items():
            yield from _wrong(key, str, "string", f"{path} key")
            yield from _wrong(item, arguments[1], avro_type["values"], f"{path}[{key!r:.20}]")
    elif hint in (str, int, float, bytes):
        bits = 31 if avro_type == "int" else 63
        if type(value) is not hint or (hint is int and not -(1 << bits) <= value < 1 << bits):
            yield f"{path} is {value!r:.40}"
    elif type(value) is not hint:
        yield f"{path} is a {type(value).__name__}"
    else:
        yield from _wrong_record(value, _hints(hint), avro_type, path)


def _wrong_record(value: Any, hints: Mapping[str, Any], avro: Mapping[str, Any], path: str) -> Iterator[str]:
    held = vars(value)
    if held.keys() != hints.keys():
        yield f"{path} has the fields {sorted(held)}"
        return
    for each in avro["fields"]:
        yield from _wrong(held[each["name"]], hints[each["name"]], each["type"], f"{path}.{each['name']}")


def _hints(cls: type[Any]) -> Mapping[str, Any]:
    if cls not in _HINTS:
        hints = typing.get_type_hints(cls)
        _HINTS[cls] = {each.name: hints[each.name] for each in fields(cls)}
    return _HINTS[cls]


_HINTS: dict[type[Any], Mapping[str, Any]] = {}


def _memory_bytes(name: str) -> int:
    """VmRSS, VmHWM (the most that it was) or VmSize of this process. (ru_maxrss begins with that of the parent.)"""
    status = Path("/proc/self/status").read_text()
    found = re.search(rf"{name}:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def _limit_address_space() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_memory_bytes("VmSize") + ADDRESS_SPACE_BYTES, hard))


def report(summary: Summary) -> str:
    lines = [f"{summary.count} payloads"]
    lines += [f"  {count:7}  {outcome}" for outcome, count in summary.outcomes.most_common()]
    lines.append(f"slowest {summary.slowest_ms:.0f} ms: {summary.slowest}")
    lines.append(f"memory taken {summary.taken_bytes / 2**20:.1f} MB at most: {summary.taken_by}")
    lines.append(f"{len(summary.findings)} findings")
    lines += [f"  {finding}" for finding in summary.findings[:20]]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz_avro")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--marker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.marker:
        chosen.result.write_text(json.dumps(vars(run_here(chosen.count, chosen.seed, chosen.marker))))
        return 0
    summary = fuzz(chosen.count, chosen.seed)
    print(report(summary))
    return 1 if summary.findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
