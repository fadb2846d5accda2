"""An engine under the real scheduler, without a log: what a worker does with both, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from gpu_consumers.engine import Engine
from gpu_consumers.scheduler import Scheduler
from gpu_consumers.sequence import Sequence


@dataclass(slots=True)
class Answers:
    """Output tokens and reasons of failure by request id, and how often a slot was lost."""

    tokens: dict[str, list[int]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    preemptions: int = 0
    resumed_cached: int = 0


def run_scheduled(engine: Engine, sequences: Iterable[Sequence], *, apart: int = 0) -> Answers:
    """All of them to the end of their `max_tokens`; one comes every `apart` steps (0: all at once)."""
    scheduler = Scheduler(engine.info, cached_tokens=engine.cached_tokens)
    coming, answers, number = list(sequences), Answers(), 0
    left = {one.request_id: one.max_tokens - len(one.prefix_token_ids) for one in coming}
    while coming or scheduler.waiting_count or scheduler.running_count:
        while coming and (not apart or number % apart == 0):
            scheduler.add(coming.pop(0))
            if apart:
                break
        number += 1
        step = scheduler.next_step(number)
        answers.preemptions += len(step.preempted)
        answers.resumed_cached += sum(step.resumed.values())
        outcome = scheduler.take(engine.execute(step.plan))
        answers.failures.update(outcome.failures)
        for request_id, token_id in outcome.tokens.items():
            made = answers.tokens.setdefault(request_id, [])
            made.append(token_id)
            if len(made) == left[request_id]:
                scheduler.remove(request_id)
        scheduler.check_integrity()
    engine.execute(scheduler.next_step(number).plan)
    return answers
