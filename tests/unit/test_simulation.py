"""What the scheduler promises of whole traces, in virtual time. `python -m tests.simulation` shows the figures."""

from __future__ import annotations

from functools import cache

import pytest

from gpu_consumers.engine import EngineInfo
from gpu_consumers.scheduler import Scheduler
from tests.simulation.__main__ import main
from tests.simulation.arrivals import FLOOD, Arrival, Trace, traces
from tests.simulation.machine import MEASURED
from tests.simulation.report import Figures, figures, service_bound
from tests.simulation.simulator import SCHEDULERS, Cached, Run, ServiceGaps, simulate

TRACES = {trace.name: trace for trace in traces()}
OVERLOADED = ("poisson", "weighted", "heavy tail", "deadlines", "scarce memory", "assistants")


@cache
def run(trace: str, scheduler: str = "ours") -> Run:
    return simulate(TRACES[trace], SCHEDULERS[scheduler])


def seen(trace: str, scheduler: str = "ours") -> Figures:
    return figures(TRACES[trace], run(trace, scheduler))


@pytest.mark.parametrize("trace", TRACES)
def test_service_of_tenants_that_wait_never_differs_by_more_than_the_bound_of_the_paper(trace: str) -> None:
    assert seen(trace).service_gap <= service_bound(TRACES[trace])


@pytest.mark.parametrize("trace", OVERLOADED)
def test_service_differs_less_than_first_come_first_served_and_round_robin_would_have_it(trace: str) -> None:
    ours = seen(trace).service_gap
    assert 0 < ours < seen(trace, "FCFS").service_gap
    assert ours < seen(trace, "round robin").service_gap


@pytest.mark.parametrize("trace", TRACES)
def test_every_request_ends_and_all_but_the_timed_out_are_whole(trace: str) -> None:
    for story in run(trace).stories.values():
        assert story.ended_at_us is not None
        assert len(story.tokens_at_us) == story.arrival.output_tokens or story.timed_out
        assert not story.timed_out or story.arrival.deadline_us is not None


@pytest.mark.parametrize("trace", TRACES)
def test_a_running_decode_is_in_every_step_and_no_step_is_longer_than_its_tokens_allow(trace: str) -> None:
    found, info = run(trace), TRACES[trace].info
    assert found.missed_decodes == 0
    assert found.longest_step_us <= MEASURED.duration_us(info.max_step_tokens, info.slots)


@pytest.mark.parametrize("name", [FLOOD, "scarce flood"])
def test_a_flood_raises_a_light_tenants_time_to_first_token_by_a_quarter_at_most(name: str) -> None:
    quiet = TRACES[name].without(FLOOD)
    alone = figures(quiet, simulate(quiet)).ttft_ms
    for light in ("light1", "light2"):
        assert seen(name).ttft_ms[light][1] <= 1.25 * alone[light][1]


def test_so_it_does_without_measured_step_costs_and_not_with_round_robin() -> None:
    def no_step_costs(info: EngineInfo, cached: Cached) -> Scheduler:
        return Scheduler(info, cached_tokens=cached)

    trace = TRACES[FLOOD]
    quiet = trace.without(FLOOD)
    alone = figures(quiet, simulate(quiet, no_step_costs)).ttft_ms
    beside_the_flood = figures(trace, simulate(trace, no_step_costs)).ttft_ms
    for light in ("light1", "light2"):
        assert beside_the_flood[light][1] <= 1.25 * alone[light][1]
        assert seen(FLOOD, "round robin").ttft_ms[light][1] > 1.25 * alone[light][1]


def test_a_flood_gives_up_at_most_an_eighth_of_its_throughput_to_that() -> None:
    assert seen(FLOOD).tokens_per_second >= 0.875 * seen(FLOOD, "FCFS").tokens_per_second


def test_where_memory_is_scarce_little_is_done_twice_and_throughput_is_that_of_first_come_first_served() -> None:
    ours, theirs = seen("scarce memory"), seen("scarce memory", "FCFS")
    assert ours.tokens_per_second >= 0.95 * theirs.tokens_per_second
    assert ours.preemptions <= 0.1 * len(TRACES["scarce memory"].arrivals)


def test_prompts_that_begin_alike_are_run_once_for_each_tenant() -> None:
    assert seen("assistants").cached > 0.8


@pytest.mark.parametrize("trace", ["deadlines", "uneven answers"])
@pytest.mark.parametrize("baseline", ["FCFS", "round robin"])
def test_more_deadlines_are_met_than_by_the_baselines(trace: str, baseline: str) -> None:
    assert seen(trace).deadline_hits > 1.25 * seen(trace, baseline).deadline_hits


def test_the_same_trace_gives_the_same_run() -> None:
    assert traces() == tuple(TRACES.values())
    assert simulate(TRACES["bursts"]) == run("bursts")


def test_one_request_takes_what_the_cost_model_says() -> None:
    trace = Trace("one", "", (Arrival(1_000_000, "a", 100, 3),))
    story = simulate(trace).stories["r0"]
    prefill_us, decode_us = int(MEASURED.duration_us(100, 0)), int(MEASURED.duration_us(0, 1))
    first = 1_000_000 + prefill_us
    assert story.tokens_at_us == [first, first + decode_us, first + 2 * decode_us]
    assert story.ttft_us == prefill_us


def test_a_gap_is_of_an_interval_in_which_both_wait() -> None:
    gaps = ServiceGaps(["a", "b"])
    gaps.serve("a", 100)
    assert gaps.look({"a", "b"}) == 0
    gaps.serve("a", 5)
    assert gaps.look({"a", "b"}) == 5
    gaps.serve("b", 8)
    assert gaps.look({"a", "b"}) == 8
    gaps.serve("b", 50)
    assert gaps.look({"a"}) == 0
    assert gaps.look({"a", "b"}) == 0


def test_help_tells_what_is_simulated_and_names_every_trace(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert "in virtual time" in told
    assert all(f"{trace.name} " in told and trace.about in told for trace in TRACES.values())


def test_one_trace_is_simulated_when_its_name_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "bursts"]) == 0
    told = capsys.readouterr().out
    assert TRACES["bursts"].about in told
    assert TRACES["poisson"].about not in told


def test_a_word_that_no_trace_has_in_its_name_is_refused_with_the_names(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--only", "tide"])
    assert ended.value.code == 2
    assert "'tide'" in (told := capsys.readouterr().err)
    assert "scarce flood" in told
