"""What a client knows of one response: a fold of the server's events, without a socket in it.

Event names and sequence numbers are those of the WebSocket protocol: dense from 0 for each response. After a
reconnection the client resumes after `last_sequence_number`; an event that it has seen already changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

DELTA = "response.output_text.delta"
TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})


@dataclass(frozen=True, slots=True)
class Answer:
    """status: `waiting` until a terminal event; then its name without `response.`."""

    response_id: str | None = None
    text: str = ""
    last_sequence_number: int = -1
    status: str = "waiting"
    problem: str = ""
    output_tokens: int | None = None

    @property
    def is_over(self) -> bool:
        return self.status != "waiting"

    def take(self, event: Mapping[str, Any]) -> tuple[Answer, str]:
        """The answer after this event, and the text that is new in it. Events of other responses change nothing."""
        if self.is_over:
            return self, ""
        kind = str(event.get("type", ""))
        if kind == "error":
            return replace(self, status="failed", problem=_problem_in(event) or "the server sent an error"), ""
        response_id, number = _id_in(event), event.get("sequence_number")
        if self.response_id is not None and response_id not in (None, self.response_id):
            return self, ""
        if isinstance(number, int) and number <= self.last_sequence_number:
            return self, ""
        after = replace(
            self,
            response_id=self.response_id or response_id,
            last_sequence_number=number if isinstance(number, int) else self.last_sequence_number,
        )
        if kind == DELTA:
            delta = str(event.get("delta", ""))
            return replace(after, text=after.text + delta), delta
        if kind in TERMINAL:
            return after._ended(kind, event), ""
        return after, ""

    def _ended(self, kind: str, event: Mapping[str, Any]) -> Answer:
        response = event.get("response")
        usage = response.get("usage") if isinstance(response, Mapping) else None
        tokens = usage.get("output_tokens") if isinstance(usage, Mapping) else None
        return replace(
            self,
            status=kind.removeprefix("response."),
            problem=_problem_in(event),
            output_tokens=tokens if isinstance(tokens, int) else None,
        )


def _id_in(event: Mapping[str, Any]) -> str | None:
    direct = event.get("response_id")
    if isinstance(direct, str):
        return direct
    response = event.get("response")
    if isinstance(response, Mapping) and isinstance(response.get("id"), str):
        return str(response["id"])
    return None


def _problem_in(event: Mapping[str, Any]) -> str:
    """The message of the error, wherever the event carries one."""
    response = event.get("response")
    places = [event.get("error"), response.get("error") if isinstance(response, Mapping) else None, event]
    for place in places:
        if isinstance(place, Mapping) and isinstance(place.get("message"), str):
            return str(place["message"])
    details = response.get("incomplete_details") if isinstance(response, Mapping) else None
    return str(details.get("reason", "")) if isinstance(details, Mapping) else ""
