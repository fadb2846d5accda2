"""Arrival traces: who asks for what, and when. Seeded: the same trace every time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from gpu_consumers.engine import EngineInfo
from tests.simulation.machine import INFO, SCARCE

SECOND_US: Final = 1_000_000
LONGEST_PROMPT: Final = 1024
LONGEST_ANSWER: Final = 256
FLOOD: Final = "flood"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request. deadline_us: after its arrival; None: it has none.

    shared_tokens: how many of the first of its prompt are those of all requests of its tenant.
    max_output_tokens: what it asks for, and seldom needs; None: what it needs.
    """

    at_us: int
    tenant: str
    prompt_tokens: int
    output_tokens: int
    deadline_us: int | None = None
    shared_tokens: int = 0
    max_output_tokens: int | None = None

    def prompt(self, number: int) -> tuple[int, ...]:
        """Token ids; `number` is the request's own."""
        return (0,) * self.shared_tokens + (number + 1,) * (self.prompt_tokens - self.shared_tokens)

    @property
    def max_tokens(self) -> int:
        return self.prompt_tokens + (self.max_output_tokens or self.output_tokens)


@dataclass(frozen=True, slots=True)
class Trace:
    """name, what it is for people, arrivals in order of time, the weights of tenants that don't weigh 1, and on what
    machine."""

    name: str
    about: str
    arrivals: tuple[Arrival, ...]
    weights: Mapping[str, float] = field(default_factory=dict)
    info: EngineInfo = INFO

    @property
    def tenants(self) -> list[str]:
        return sorted({arrival.tenant for arrival in self.arrivals})

    def without(self, tenant: str) -> Trace:
        """The same, had this tenant never come."""
        others = tuple(arrival for arrival in self.arrivals if arrival.tenant != tenant)
        return replace(self, name=f"{self.name}, without {tenant}", arrivals=others)


def traces() -> tuple[Trace, ...]:
    """All of them."""
    return (
        poisson(), weighted(), bursts(), heavy_tail(), flood(), deadlines(), uneven_answers(),
        scarce_memory(), scarce_flood(), assistants(),
    )  # fmt: skip


def poisson(seconds: int = 60) -> Trace:
    """Three tenants that ask for more than there is, all the same."""
    random = Random(1)
    return _trace(
        "poisson", "three equal tenants, together too much", [_stream(random, name, 2.5, seconds) for name in "abc"]
    )


def weighted(seconds: int = 60) -> Trace:
    """The same, of unequal weights."""
    random = Random(2)
    streams = [_stream(random, name, 3.0, seconds) for name in "abc"]
    return _trace("weighted", "a weighs 4, b 2, c 1; each asks for too much", streams, {"a": 4.0, "b": 2.0})


def bursts(seconds: int = 60) -> Trace:
    """Two tenants that send 20 requests at once every ten seconds, by turns, beside a steady one."""
    random = Random(3)
    streams = [_stream(random, "steady", 1.0, seconds)]
    for name, first in (("a", 0), ("b", 5)):
        for second in range(first, seconds, 10):
            streams.append([_arrival(random, name, second * SECOND_US) for _ in range(20)])
    return _trace("bursts", "a and b send 20 at once every 10 s", streams)


def heavy_tail(seconds: int = 60) -> Trace:
    """Two tenants; most prompts and answers are short, and a few very long (Pareto)."""
    random = Random(4)

    def pareto(name: str, at_us: int) -> Arrival:
        prompt = min(LONGEST_PROMPT, int(24 * random.paretovariate(1.1)))
        return Arrival(at_us, name, prompt, min(LONGEST_ANSWER, int(12 * random.paretovariate(1.1))))

    return _trace(
        "heavy tail", "a and b, Pareto lengths", [_stream(random, name, 4.0, seconds, pareto) for name in "ab"]
    )


def flood(seconds: int = 400) -> Trace:
    """One tenant that has 200 requests waiting from the start and sends more than can be served; two light ones.

    Long, since it is the 95th percentile of the light ones that counts.
    """
    random = Random(5)
    streams = [[_arrival(random, FLOOD, n) for n in range(200)], _stream(random, FLOOD, 6.0, seconds)]
    streams += [_stream(random, name, 0.2, seconds) for name in ("light1", "light2")]
    return _trace("flood", "a flood beside two tenants of one request in 5 s", streams)


def deadlines(seconds: int = 60) -> Trace:
    """Two tenants, overloaded; most requests have a deadline, of very different patience."""
    random = Random(6)

    def with_deadline(name: str, at_us: int) -> Arrival:
        base = _arrival(random, name, at_us)
        patience = random.choice((2, 4, 8, 16, None))
        deadline = None if patience is None else patience * SECOND_US
        return Arrival(at_us, name, base.prompt_tokens, base.output_tokens, deadline)

    streams = [_stream(random, name, 5.0, seconds, with_deadline) for name in "ab"]
    return _trace("deadlines", "a and b, patience of 2 to 16 s or none, overloaded", streams)


def uneven_answers(seconds: int = 60) -> Trace:
    """A tenant of short answers and one of long ones, with deadlines; both ask for the same at most."""
    random = Random(9)

    def with_deadline(name: str, at_us: int) -> Arrival:
        patience = random.choice((2, 4, 8, 16, None))
        return replace(
            _arrival(random, name, at_us),
            output_tokens=random.randint(4, 24) if name == "short" else random.randint(64, 192),
            max_output_tokens=LONGEST_ANSWER,
            deadline_us=None if patience is None else patience * SECOND_US,
        )

    streams = [_stream(random, name, rate, seconds, with_deadline) for name, rate in (("short", 8.0), ("long", 3.0))]
    return _trace("uneven answers", "short and long answers, patience of 2 to 16 s or none, overloaded", streams)


def scarce_memory(seconds: int = 60) -> Trace:
    """Three tenants that ask for four times what they need, on a machine with more slots than memory."""
    random = Random(7)

    def asking_for_more(name: str, at_us: int) -> Arrival:
        base = _arrival(random, name, at_us)
        return replace(base, max_output_tokens=4 * base.output_tokens)

    streams = [_stream(random, name, 2.5, seconds, asking_for_more) for name in "abc"]
    about = "three equal tenants, 64 slots and memory for a dozen"
    return replace(_trace("scarce memory", about, streams), info=SCARCE)


def scarce_flood() -> Trace:
    """The flood, where it fills the memory before it fills the slots."""
    return replace(flood(), name="scarce flood", about="the flood, 64 slots and memory for a dozen", info=SCARCE)


def assistants(seconds: int = 60) -> Trace:
    """Two tenants whose prompts begin with 256 tokens of their own, which the prefix cache keeps."""
    random = Random(8)

    def with_instructions(name: str, at_us: int) -> Arrival:
        base = _arrival(random, name, at_us)
        return replace(base, prompt_tokens=256 + base.prompt_tokens // 4, shared_tokens=256)

    streams = [_stream(random, name, 4.0, seconds, with_instructions) for name in "ab"]
    about = "a and b, prompts that begin alike, 64 slots, scarce memory"
    return replace(_trace("assistants", about, streams), info=SCARCE)


def _arrival(random: Random, tenant: str, at_us: int) -> Arrival:
    return Arrival(at_us, tenant, random.randint(16, 256), random.randint(16, 96))


def _stream(
    random: Random, tenant: str, per_second: float, seconds: int, make: Callable[[str, int], Arrival] | None = None
) -> list[Arrival]:
    """Poisson arrivals."""
    found, at = [], random.expovariate(per_second)
    while at < seconds:
        at_us = int(at * SECOND_US)
        found.append(_arrival(random, tenant, at_us) if make is None else make(tenant, at_us))
        at += random.expovariate(per_second)
    return found


def _trace(
    name: str, about: str, streams: Iterable[list[Arrival]], weights: Mapping[str, float] | None = None
) -> Trace:
    arrivals = sorted((arrival for stream in streams for arrival in stream), key=lambda arrival: arrival.at_us)
    return Trace(name, about, tuple(arrivals), weights or {})
