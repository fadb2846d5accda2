"""What the scheduler says of one step: before it runs, and of what it brought."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpu_consumers.plan import Logprobs, StepPlan


@dataclass(frozen=True, slots=True)
class Step:
    """What to do next. expired: request ids that left because of their deadline.

    admitted: request ids that got a slot for the first time, with how many of their first tokens were cached.
    resumed: the same of those that got one again; they go on behind their newest token.
    preempted: request ids that have lost their slot since the step before, and wait again.
    """

    plan: StepPlan
    admitted: Mapping[str, int]
    expired: tuple[str, ...]
    resumed: Mapping[str, int] = field(default_factory=dict)
    preempted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step brought, by request id. What failed has left already. logprobs: where they were asked for."""

    tokens: Mapping[str, int]
    failures: Mapping[str, str]
    logprobs: Mapping[str, Logprobs] = field(default_factory=dict)
