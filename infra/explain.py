"""`headrace explain`: where the time of one response went, and what was decided about it."""

from __future__ import annotations

import threading

from rich.console import Console

from eventlog.clock import monotonic, now_us
from infra.clickhouse.access import ClickHouseAccess, records
from infra.errors import InfraError
from infra.trace import Trace, trace_of
from infra.waterfall import render
from schemas.ids import request_id_of

_REQUEST = """
SELECT *, toUnixTimestamp64Micro(received_at) AS received_us, toUnixTimestamp64Micro(ended_at) AS ended_us
FROM headrace.requests WHERE request_id = {id:String}
"""
_EVENTS = """
SELECT event_type, topic, toUnixTimestamp64Micro(at) AS at_us, payload
FROM headrace.events WHERE request_id = {id:String} AND event_type != '' ORDER BY at, offset
"""
_POLL_SECONDS = 0.2
# What ended so long ago has all of its events: a delivery that is not there will not come.
_SETTLED_US = 60_000_000


class RequestUnknown(InfraError):
    code = "request_unknown"

    def __init__(self, response_id: str) -> None:
        super().__init__(
            f"ClickHouse has no event of {response_id}: check the id and HEADRACE_DATA_DIR; events arrive about a "
            f"second after the answer."
        )


def explain(
    response_id: str, access: ClickHouseAccess, *, console: Console | None = None, wait_seconds: float = 5.0
) -> None:
    """Print the waterfall of a response (`resp_...`, `chatcmpl-...`) or request id.

    Waits up to `wait_seconds` for events that are still on their way, and shows what there is then.
    Raises InvalidName, RequestUnknown, QueryFailed, ClickHouseUnreachable.
    """
    console = console or Console()
    trace = find_trace(response_id, access, wait_seconds=wait_seconds)
    console.print(render(trace, console.width, response_id))


def find_trace(response_id: str, access: ClickHouseAccess, *, wait_seconds: float = 5.0) -> Trace:
    """The trace, as whole as it becomes within `wait_seconds`. Raises as `explain` does."""
    request_id = request_id_of(response_id)
    give_up_at = monotonic() + wait_seconds
    pause = threading.Event()
    while True:
        trace = _read(request_id, access)
        if monotonic() >= give_up_at or (trace is not None and _is_whole(trace)):
            break
        pause.wait(_POLL_SECONDS)
    if trace is None:
        raise RequestUnknown(response_id)
    return trace


def _read(request_id: str, access: ClickHouseAccess) -> Trace | None:
    rows = records(access, _REQUEST, {"id": request_id})
    return trace_of(rows[0], records(access, _EVENTS, {"id": request_id})) if rows else None


def _is_whole(trace: Trace) -> bool:
    if trace.ended_us is None:
        return False
    # Nobody delivers to those who read the topic themselves.
    return trace.is_delivered or trace.endpoint == "events" or trace.ended_us < now_us() - _SETTLED_US
