"""What a run came to, as figures and as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rich.table import Table

from gpu_consumers.fair_queue import DEFAULT_COSTS
from tests.simulation.arrivals import SECOND_US, Trace
from tests.simulation.simulator import Run, Story


@dataclass(frozen=True, slots=True)
class Figures:
    """ttft_ms: (p50, p95) of each tenant. deadline_hits of deadlines: requests that have one, and were whole by it.

    cached: part of all prompt tokens that were in memory already.
    """

    service_gap: float
    ttft_ms: Mapping[str, tuple[float, float]]
    deadline_hits: int
    deadlines: int
    tokens_per_second: float
    preemptions: int
    cached: float


def service_bound(trace: Trace) -> float:
    """2 max(w_in L_input, w_out M) of Sheng et al., theorem 4.4, over the least weight.

    M: the most tokens in a batch, taken as all slots with the longest request of the trace, or the whole memory where
    that is less: no more can come together.
    """
    info = trace.info
    longest_prompt = max(arrival.prompt_tokens for arrival in trace.arrivals)
    longest = max(arrival.prompt_tokens + arrival.output_tokens for arrival in trace.arrivals)
    least_weight = min(trace.weights.get(tenant, 1.0) for tenant in trace.tenants)
    in_batch = info.slots * longest
    if info.kv_blocks:
        in_batch = min(in_batch, info.kv_blocks * info.block_tokens)
    most = max(DEFAULT_COSTS.input * longest_prompt, DEFAULT_COSTS.output * in_batch)
    return 2 * most / least_weight


def figures(trace: Trace, run: Run) -> Figures:
    stories = list(run.stories.values())
    timed = [story for story in stories if story.arrival.deadline_us is not None]
    return Figures(
        service_gap=run.service_gap,
        ttft_ms={
            tenant: ttft_percentiles(story for story in stories if story.arrival.tenant == tenant)
            for tenant in trace.tenants
        },
        deadline_hits=sum(story.in_time for story in timed),
        deadlines=len(timed),
        tokens_per_second=sum(len(story.tokens_at_us) for story in stories) * SECOND_US / run.ended_at_us,
        preemptions=sum(story.preempted for story in stories),
        cached=run.cached_tokens / sum(story.arrival.prompt_tokens for story in stories),
    )


def ttft_percentiles(stories: Iterable[Story]) -> tuple[float, float]:
    """TTFT p50 and p95, ms; requests that never had a token are left out."""
    times = sorted(story.ttft_us / 1000 for story in stories if story.ttft_us is not None)
    return percentile(times, 0.5), percentile(times, 0.95)


def percentile(ordered: list[float], part: float) -> float:
    """Nearest rank; NaN of nothing."""
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else float("nan")


def table(trace: Trace, of: Mapping[str, Figures]) -> Table:
    """One line for each scheduler."""
    made = Table(title=f"{trace.name}: {trace.about}", box=None, pad_edge=False, title_justify="left")
    made.add_column("scheduler")
    bound = f"service gap (bound {service_bound(trace):,.0f})"
    tenants = [f"TTFT {tenant} p50/p95 ms" for tenant in trace.tenants]
    for heading in (bound, *tenants, "in time", "token/s", "preempted", "cached"):
        made.add_column(heading, justify="right")
    for name, found in of.items():
        times = [f"{p50:,.0f} / {p95:,.0f}" if p50 == p50 else "-" for p50, p95 in found.ttft_ms.values()]
        in_time = f"{found.deadline_hits} of {found.deadlines}" if found.deadlines else "-"
        made.add_row(
            name, f"{found.service_gap:,.0f}", *times, in_time, f"{found.tokens_per_second:.0f}",
            str(found.preemptions), f"{found.cached:.0%}" if trace.info.kv_blocks else "-",
        )  # fmt: skip
    return made
