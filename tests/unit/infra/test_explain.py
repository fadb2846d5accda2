"""`headrace explain`: a trace from events, a picture from a trace, and patience for events on their way."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, replace
from typing import Any

import pytest
from rich.console import Console

from infra.clickhouse.engine import Answer, Question
from infra.explain import RequestUnknown, explain, find_trace
from infra.trace import STAGES, Stage, Trace, trace_of
from infra.waterfall import bar, render
from schemas.errors import InvalidName
from schemas.events import Event
from schemas.ids import response_id_of
from streams.sink.rows import payload_of
from tests.request_story import RECEIVED_US, Story, copy_of

STORY = Story()


def request(**changes: Any) -> dict[str, Any]:
    """The view's row of Story.whole()."""
    ms = dict(zip(STAGES, (2.0, 1.0, 2.0, 0.5, 2.5, 1.0, 1.0, 29.0, 1.1), strict=True))
    return {
        "request_id": STORY.request_id, "tenant": "acme", "model": "chat", "model_version": "chat@v1",
        "deployment": "chat-v1", "worker": "worker-1", "status": "completed", "finish_reason": "stop",
        "error_code": "", "prompt_tokens": 3, "output_tokens": 4, "attempts": 1, "endpoint": "responses",
        "received_at": "2026-11-30 00:53:20.000000", "received_us": RECEIVED_US, "ended_us": RECEIVED_US + 39_000,
        "delivered_at": "2026-11-30 00:53:20.040100", "total_ms": 40.1, "ttft_ms": 10.0,
        **{f"{name}_ms": value for name, value in ms.items()}, **changes,
    }  # fmt: skip


def rows_of(*events: tuple[str, Event]) -> list[dict[str, Any]]:
    return [
        {"event_type": type(e).__name__, "topic": topic, "at_us": e.at_us, "payload": payload_of(e).decode()}
        for topic, e in events
        if type(e).__name__ != "TokensGenerated"
    ]


def shown(trace: Trace, width: int = 100) -> list[str]:
    screen = io.StringIO()
    console = Console(file=screen, width=width, color_system=None)
    console.print(render(trace, width, "resp_1"))
    return [line.rstrip() for line in screen.getvalue().splitlines()]


WHOLE = trace_of(request(), rows_of(*STORY.whole()))


def test_the_picture_of_a_whole_request() -> None:
    assert shown(WHOLE, 80) == [
        "resp_1  completed (stop)",
        "tenant acme · chat → chat@v1 → worker-1 · received 2026-11-30 00:53:20 UTC",
        "3 prompt tokens, 4 output tokens · first token after 10.0 ms",
        "then 103.4 tokens/s",
        "",
        "stage            ms   share  0 ms                                        40.1 ms",
        "ingress       2.000    5.0%  ██▌",
        "validate      1.000    2.5%    █▎",
        "quota         2.000    5.0%     ██▌",
        "route         0.500    1.2%        ▋",
        "queue         2.500    6.2%        ███▏",
        "schedule      1.000    2.5%            █▎",
        "prefill       1.000    2.5%             █▎",
        "decode       29.000   72.3%              ████████████████████████████████████▉",
        "deliver       1.100    2.7%                                                   █▍",
        "total        40.100   the stages add up to 40.100 ms, 0.000 ms off",
        "",
        " +1.0 ms  submitted  to responses for chat, 1 message",
        " +3.0 ms  validated  3 prompt tokens for chat@v1, at most 16 to make, greedy",
        " +5.0 ms  admitted   19 tokens reserved; left this minute: 9,981 of 10,000",
        "                     tokens, 59 of 60 requests",
        " +5.5 ms  routed     to chat@v1 on chat-v1: alias chat is chat@v1",
        " +9.0 ms  started    on worker-1",
        "+39.0 ms  finished   stop after 4 output tokens",
        "+40.0 ms  settled    7 of 19 reserved tokens used, 12 given back",
        "+40.1 ms  delivered  9 events over sse by gateway-1",
    ]


def test_what_was_decided_in_one_step_is_told_as_one_follows_from_the_other() -> None:
    topic, admitted = STORY.admitted()
    at_once = [STORY.routed(), (topic, replace(admitted, at_us=STORY.routed()[1].at_us))]
    for events in (at_once, at_once[::-1]):
        told = trace_of(request(), rows_of(*events)).decisions
        assert [decision.what for decision in told] == ["admitted", "routed"]


def test_a_refusal_says_its_status_its_reason_and_when_to_try_again() -> None:
    unreached = {f"{name}_ms": None for name in STAGES[2:]}
    row = request(
        status="rejected", finish_reason="", error_code="requests_per_minute_exceeded", ended_us=RECEIVED_US + 4_000,
        prompt_tokens=0, output_tokens=0, worker="", model_version="", delivered_at=None, total_ms=3.0, ttft_ms=None,
        **unreached,
    )  # fmt: skip
    refused = STORY.rejected(at=4_000, stage="quota", code="requests_per_minute_exceeded")
    lines = shown(trace_of(row, rows_of(STORY.submitted(), refused)), 120)
    assert lines[0] == "resp_1  rejected (requests_per_minute_exceeded)"
    assert lines[1] == "tenant acme · chat · received 2026-11-30 00:53:20 UTC"
    assert "3.000   the stages add up to 3.000 ms, 0.000 ms off; not delivered yet" in lines[6]
    assert lines[-1] == (
        "+4.0 ms  refused by quota  429 requests_per_minute_exceeded: Too many requests; try again in 2.5 s"
    )


def test_attempts_are_told_apart_and_only_the_ending_that_counts_is_told() -> None:
    events = [
        STORY.started(), STORY.started(at=20_000, attempt=2), STORY.finished(at=25_000, attempt=1),
        STORY.finished(attempt=2), copy_of(STORY.finished(attempt=2)), STORY.routed(), STORY.routed(at=30_000),
    ]  # fmt: skip
    trace = trace_of(request(attempts=2), rows_of(*events))
    assert [(decision.at_ms, decision.what, decision.why) for decision in trace.decisions] == [
        (5.5, "routed", "to chat@v1 on chat-v1: alias chat is chat@v1"),
        (9.0, "started", "on worker-1"),
        (20.0, "started", "attempt 2 on worker-2, takes over 1 output token"),
        (39.0, "finished", "stop after 4 output tokens"),
    ]
    assert "2 attempts" in "\n".join(shown(trace))


def test_a_running_request_shows_what_is_over() -> None:
    unreached = {f"{name}_ms": None for name in STAGES[6:]}
    trace = trace_of(
        request(status="running", finish_reason="", ended_us=None, delivered_at=None, total_ms=None, **unreached), []
    )
    assert any(line.startswith("so far        9.000   the request is still running") for line in shown(trace))


def test_a_stage_starts_where_the_one_before_ends_and_is_never_invisible() -> None:
    assert [round(stage.start_ms, 6) for stage in WHOLE.stages] == [0, 2, 3, 5, 5.5, 8, 9, 10, 39]
    assert WHOLE.stages_ms == pytest.approx(40.1)
    assert bar(Stage("route", 999.9, 0.0001), 1000.0, 20) == " " * 19 + "▏"
    assert bar(Stage("decode", 0.0, 1000.0), 1000.0, 20) == "█" * 20
    assert bar(Stage("route", 0.0, 0.0), 0.0, 20) == "▏"
    # clocks of two machines can disagree: a stage below zero still has its place
    assert bar(Stage("queue", 10.0, -2.0), 1000.0, 20) == "▏"
    assert bar(Stage("queue", -3.0, 2.0), 1000.0, 20) == "▏"


def test_long_times_are_whole_and_stand_above_their_sum() -> None:
    slow = trace_of(request(decode_ms=35_090.114, total_ms=35_101.214), [])
    decode, _, total = (line for line in shown(slow, 80) if line.startswith(("decode", "deliver", "total")))
    assert decode.index(" 35,090.114 ") == total.index(" 35,101.214 ")


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(len, shown(WHOLE, width))) <= width


@dataclass(slots=True)
class Arriving:
    """ClickHouse while the sink is at work: each question about the request finds the next of these rows."""

    rows: list[dict[str, Any] | None]
    asked: int = 0

    def ask(self, question: Question) -> Answer:
        if "headrace.events" in question.text:
            return Answer(b"", question.format)
        row = self.rows[min(self.asked, len(self.rows) - 1)]
        self.asked += 1
        assert question.parameters == {"id": STORY.request_id}
        return Answer(b"" if row is None else json.dumps(row).encode() + b"\n", question.format)


def test_events_that_are_on_their_way_are_waited_for() -> None:
    access = Arriving([None, request(ended_us=None, total_ms=None, delivered_at=None), request()])
    trace = find_trace(response_id_of(STORY.request_id), access, wait_seconds=30)
    assert (trace.total_ms, access.asked) == (40.1, 3)


def test_nobody_waits_for_a_delivery_that_will_not_come() -> None:
    long_ago = request(delivered_at=None)  # it ended long before now
    by_events = request(delivered_at=None, endpoint="events", ended_us=2**62)
    for row in (long_ago, by_events):
        access = Arriving([row])
        find_trace(STORY.request_id, access, wait_seconds=30)
        assert access.asked == 1


def test_patience_ends_and_what_there_is_is_shown() -> None:
    running = request(ended_us=None, total_ms=None, delivered_at=None)
    assert find_trace(STORY.request_id, Arriving([running]), wait_seconds=0).total_ms is None


def test_an_id_that_nobody_knows_and_a_text_that_is_no_id_are_clear_errors() -> None:
    with pytest.raises(RequestUnknown, match=f"no event of {STORY.request_id}"):
        find_trace(STORY.request_id, Arriving([None]), wait_seconds=0)
    with pytest.raises(InvalidName, match="is not a request id"):
        find_trace("resp_nope", Arriving([None]), wait_seconds=0)


def test_explain_prints_the_id_as_it_was_given() -> None:
    screen = io.StringIO()
    given = response_id_of(STORY.request_id, "chatcmpl-")
    explain(given, Arriving([request()]), console=Console(file=screen, width=100), wait_seconds=0)
    assert screen.getvalue().startswith(f"{given}  completed")


def test_a_trace_without_any_stage_still_shows_its_head() -> None:
    assert shown(replace(WHOLE, stages=(), decisions=()))[0] == "resp_1  completed (stop)"


def why(row: dict[str, Any], **changes: object) -> str:
    """What is said of this event, with some of its fields changed."""
    payload = json.dumps({**json.loads(row["payload"]), **changes})
    (decision,) = trace_of(request(), [{**row, "payload": payload}]).decisions
    return decision.why


def test_parameters_are_told_where_they_are_not_what_always_holds() -> None:
    (row,) = rows_of(STORY.validated())
    chosen: dict[str, Any] = {
        "temperature": 0.7, "seed": 11, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "repetition_penalty": 1.1,
        "presence_penalty": -0.5, "frequency_penalty": 0.25, "logit_bias": [{"token_id": 7, "bias": -100.0}],
        "top_logprobs": 3, "json_schema": '{"type":"object"}',
    }  # fmt: skip
    assert why(row, **chosen).endswith(
        "temperature 0.7, seed 11, top_p 0.9, top_k 40, min_p 0.05, repetition_penalty 1.1, presence_penalty -0.5, "
        "frequency_penalty 0.25, bias on 1 token, log probabilities with the 3 likeliest, JSON by a schema of 17 bytes"
    )
    assert why(row, top_logprobs=0).endswith("greedy, log probabilities")
    assert why(row).endswith("greedy")


def test_the_adapter_is_told_with_the_version_that_it_is_for() -> None:
    (row,) = rows_of(STORY.routed())
    told = why(row, adapter="tone@v1", reason="adapter tone@v1 of chat@v1")
    assert told == "to chat@v1 with adapter tone@v1 on chat-v1: adapter tone@v1 of chat@v1"


def test_an_event_of_a_release_before_these_parameters_is_told() -> None:
    (row,) = rows_of(STORY.validated())
    old = ("prompt_token_ids", "tokenized_for", "max_output_tokens", "temperature", "seed", "at_us")
    payload = {name: json.loads(row["payload"])[name] for name in old}
    assert why({**row, "payload": json.dumps(payload)}).endswith("greedy")
