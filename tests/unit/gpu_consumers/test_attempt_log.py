"""What is found in the token logs, and how much of them is read for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from eventlog.reader import Position
from eventlog.record import Record
from gpu_consumers.attempt_log import CLOCK_SKEW_MS, AttemptLog
from gpu_consumers.partition import HeldPartition
from gpu_consumers.work import Work
from schemas.codec import encode
from schemas.events import GenerationStarted, TokenLogEvent, TokensGenerated
from schemas.headers import headers_of
from schemas.ids import new_request_id, partition_of
from tests.unit.gpu_consumers.test_generation import ORDER


class MemoryLog:
    """A log in memory: a record a millisecond, from 100,000 ms on."""

    def __init__(self) -> None:
        self.records: dict[Position, list[Record]] = defaultdict(list)
        self.read = 0

    def write(self, event: TokenLogEvent) -> None:
        self.write_bytes(encode(event), event.request_id, headers_of(event, source="/test"))

    def write_bytes(self, value: bytes, request_id: str, headers: list[tuple[str, bytes]]) -> None:
        position = "tokens.t", partition_of(request_id)
        offset = len(self.records[position])
        record = Record(*position, offset, 100_000 + offset, request_id.encode(), value, headers)
        self.records[position].append(record)

    def offset_at(self, topic: str, partition: int, at_ms: int) -> int:
        return max(0, at_ms - 100_000)

    def read_to_end(self, starts: Mapping[Position, int]) -> Iterator[Record]:
        for position, offset in starts.items():
            for record in self.records[position][offset:]:
                self.read += 1
                yield record


def request_id(number: int, partition: int = 0) -> str:
    return new_request_id(now_ms=1, partition=partition, entropy=number)


def work(number: int, partition: int = 0, *, written_at_ms: int = 100_000) -> Work:
    order = replace(ORDER, request_id=request_id(number, partition))
    return Work(order, HeldPartition("work", 0), number, written_at_ms, 0)


def started(number: int, partition: int = 0, attempt: int = 1) -> GenerationStarted:
    return GenerationStarted(
        request_id=request_id(number, partition), tenant="t", attempt=attempt, at_us=1, pulled_at_us=1, worker="w",
        deployment="d", model_version="m@v1", prompt_tokens=1,
    )  # fmt: skip


def tokens(number: int, partition: int = 0) -> TokensGenerated:
    return TokensGenerated(
        request_id=request_id(number, partition), tenant="t", attempt=1, at_us=2, index=0, token_ids=(65,),
        text_offset_chars=0, text="A",
    )  # fmt: skip


def test_each_request_gets_its_own_log_from_whatever_partition() -> None:
    log = MemoryLog()
    for event in (started(1), started(2, 1), tokens(1), tokens(2, 1), started(1, attempt=2)):
        log.write(event)
    found = AttemptLog(log).read([work(1), work(2, 1), work(3)])
    attempts = {number: found[request_id(*number)].log.attempt for number in ((1, 0), (2, 1), (3, 0))}
    assert attempts == {(1, 0): 2, (2, 1): 1, (3, 0): 0}
    assert found[request_id(1)].log.text == found[request_id(2, 1)].log.text == "A"
    assert found[request_id(1)].barren_attempts == 1


def test_a_request_that_nobody_began_with_costs_nothing_but_the_newest_records() -> None:
    log = MemoryLog()
    for _ in range(100):
        log.write(started(1))
    attempts = AttemptLog(log)
    attempts.read([work(2)])
    assert log.read == 100
    log.write(started(3))
    attempts.read([work(number) for number in (4, 5, 6)])
    assert log.read == 101
    assert attempts.read([work(3)])[request_id(3)].log.attempt == 1
    assert log.read == 102, "and one that was begun is read from its beginning on"


def test_a_request_older_than_the_index_makes_it_anew() -> None:
    log = MemoryLog()
    log.write(started(1))
    attempts = AttemptLog(log)
    later = 100_001 + CLOCK_SKEW_MS
    assert attempts.read([work(1, written_at_ms=later)])[request_id(1)].log.attempt == 0
    assert attempts.read([work(1, written_at_ms=later - 1)])[request_id(1)].log.attempt == 1


def test_forgotten_indexes_are_made_again() -> None:
    log = MemoryLog()
    log.write(started(1))
    attempts = AttemptLog(log)
    attempts.read([work(2)])
    attempts.forget()
    assert attempts.read([work(1)])[request_id(1)].log.attempt == 1


def test_a_record_that_cant_be_read_hides_nothing() -> None:
    log = MemoryLog()
    log.write(started(1))
    log.write_bytes(b"not an event", request_id(1), [])
    log.write(tokens(1))
    assert AttemptLog(log).read([work(1)])[request_id(1)].log.text == "A"
