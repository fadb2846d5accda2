"""The load of a profile: how long requests are and when they come. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from gpu_consumers.engine import EngineInfo

_SPREAD = 0.5  # lengths are uniform within this share of their mean, so that sequences don't march in step


@dataclass(frozen=True, slots=True)
class Load:
    """prompt_tokens, output_tokens: means; single requests have from half to one and a half times as many.

    concurrency: requests in the worker at any time, each followed by the next (a closed loop).
    rate: requests a second at random times (Poisson), whatever the worker does; None: the closed loop.
    temperature: of every request.
    """

    prompt_tokens: int = 128
    output_tokens: int = 64
    concurrency: int = 16
    rate: float | None = None
    temperature: float = 1.0
    seed: int = 1

    @property
    def longest_tokens(self) -> int:
        """Of one request, prompt and output together."""
        return most(self.prompt_tokens) + most(self.output_tokens)


@dataclass(frozen=True, slots=True)
class Shape:
    """One request."""

    prompt_token_ids: tuple[int, ...]
    output_tokens: int


def most(mean: int) -> int:
    return mean + int(mean * _SPREAD)


def why_not_loadable(load: Load, info: EngineInfo) -> str | None:
    """Why this engine can't be given the load, for people; None if it can."""
    if load.longest_tokens > info.max_context_tokens:
        return (
            f"requests of up to {most(load.prompt_tokens)} prompt and {most(load.output_tokens)} output tokens do not "
            f"fit into the {info.max_context_tokens} tokens of a slot: take a smaller --prompt-tokens or "
            "--output-tokens (lengths vary from half to one and a half times these)"
        )
    return None


@dataclass(slots=True)
class Arrivals:
    """What comes when. Times are seconds since the load began."""

    load: Load
    vocabulary_size: int
    _random: random.Random = field(init=False)
    _next_at: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self._random = random.Random(self.load.seed)

    def due(self, now: float, in_worker: int) -> list[Shape]:
        """Those that come by now, of whom `in_worker` have come before and not left."""
        rate = self.load.rate
        if rate is None:
            return [self._shape() for _ in range(self.load.concurrency - in_worker)]
        shapes = []
        while self._next_at <= now:
            shapes.append(self._shape())
            self._next_at += self._random.expovariate(rate)
        return shapes

    @property
    def next_at(self) -> float:
        """When the next one comes by itself."""
        return self._next_at if self.load.rate is not None else float("inf")

    def _shape(self) -> Shape:
        prompt = tuple(
            self._random.randrange(self.vocabulary_size) for _ in range(self._length(self.load.prompt_tokens))
        )
        return Shape(prompt, self._length(self.load.output_tokens))

    def _length(self, mean: int) -> int:
        return self._random.randint(max(1, mean - int(mean * _SPREAD)), most(mean))
