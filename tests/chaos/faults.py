"""What happens to the workers: one fault after the other, until it is time to stop."""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from eventlog.clock import monotonic, now_us
from eventlog.profile import BrokerProfile
from eventlog.reader import LogReader
from schemas.events import GenerationStarted
from schemas.topics import tokens_topic
from tests.chaos.fleet import Fleet
from tests.chaos.world import TOPICS, World

WORKERS = 4
_PAUSE_SECONDS = 1.5
_FIRST_TOKEN_SECONDS = 3.0


@dataclass(slots=True)
class Faults:
    """Four workers are kept alive; each fault hits one of them.

    killed: SIGKILL at any moment. killed_at_start: SIGKILL as soon as the log says that it has begun with a request,
    so in the middle of a prefill or before the first tokens are written. slept: SIGSTOP for longer than the group
    waits, so that its partitions go to others; then it wakes and goes on writing. left: SIGTERM, a drain.
    """

    world: World
    random: random.Random
    count: Counter[str] = field(default_factory=Counter)

    async def run(self, goes_on: Callable[[], bool]) -> None:
        """Returns when it is over and whoever sleeps has woken and left."""
        faults = itertools.cycle([self._kill, self._sleep, self._kill_at_start, self._leave])
        async with asyncio.TaskGroup() as sleepers:
            while goes_on():
                await self._fleet.until_awake(WORKERS)
                await asyncio.sleep(_PAUSE_SECONDS)
                await next(faults)(sleepers)

    @property
    def _fleet(self) -> Fleet:
        return self.world.fleet

    def _victim(self) -> str:
        return self.random.choice(self._fleet.awake)

    async def _kill(self, _: asyncio.TaskGroup) -> None:
        self._fleet.kill(self._victim())
        self._fleet.start()
        self.count["killed"] += 1

    async def _kill_at_start(self, _: asyncio.TaskGroup) -> None:
        victim = await asyncio.to_thread(begins_next, self.world.broker.profile, self.world.tenants)
        if victim in self._fleet.awake:
            self._fleet.kill(victim)
            self._fleet.start()
            self.count["killed_at_start"] += 1

    async def _sleep(self, sleepers: asyncio.TaskGroup) -> None:
        victim = self._victim()
        self._fleet.put_to_sleep(victim)
        self._fleet.start()
        self.count["slept"] += 1
        sleepers.create_task(self._wake_later(victim))

    async def _wake_later(self, victim: str) -> None:
        await asyncio.sleep(1.5 * self.world.broker.profile.session_timeout_ms / 1000)
        self._fleet.wake(victim)
        await asyncio.sleep(1.0)
        self._fleet.tell_to_leave(victim)  # it has been replaced
        assert await self._fleet.until_ended(victim) in (0, -signal.SIGKILL)  # it may be killed before, like any other

    async def _leave(self, _: asyncio.TaskGroup) -> None:
        victim = self._victim()
        self._fleet.tell_to_leave(victim)
        self._fleet.start()
        assert await self._fleet.until_ended(victim) == 0
        self.count["left"] += 1


def begins_next(profile: BrokerProfile, tenants: list[str]) -> str | None:
    """The worker that is the next to begin with a request; None if nobody is for a while."""
    positions = [(tokens_topic(tenant), partition) for tenant in tenants for partition in range(TOPICS.tokens)]
    with LogReader(profile, client_id="chaos-watch") as reader:
        reader.assign_all({position: reader.bounds(*position)[1] for position in positions})
        began_us, give_up_at = now_us(), monotonic() + _FIRST_TOKEN_SECONDS
        while monotonic() < give_up_at:
            for record in reader.poll(0.05).records:
                event = record.event()
                if isinstance(event, GenerationStarted) and event.at_us > began_us:
                    return event.worker
    return None
