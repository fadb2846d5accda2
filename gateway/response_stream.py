"""One response as client events: a fold of its token log, sans I/O.

The events are a pure function of the log (`schemas.token_log` decides which of its events count), so every gateway
gives the same event the same `sequence_number`, during and after generation, before and after a restart:

    0  response.created                 the broker has the request
    .  response.queued                  RequestAdmitted, or the first sign of a worker
    .  response.in_progress, response.output_item.added, response.content_part.added        the first worker
    .  response.output_text.delta       one for each counted TokensGenerated that completes text
    .  response.output_text.done, response.content_part.done, response.output_item.done     if a worker had begun
    n  response.completed | response.incomplete | response.failed | response.cancelled

Log probabilities go with the delta whose text their tokens complete; what completes none (the end of the sequence, a
stop string) is told nowhere, as its text is not.

Only the text is kept, never the events: any of them is made again from the state when it is asked for. A connection
is therefore a cursor, and however far it falls behind it holds no memory of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from gateway.errors import GatewayError, ResponseFailed, TimedOut
from gateway.logprobs import LOGPROB_BYTES, content_of
from gateway.parameters import name_at
from gateway.response_object import message_id_of, message_item, output_text, response_object, status_of
from schemas.events import (
    GenerationFinished,
    GenerationStarted,
    RequestAdmitted,
    RequestRejected,
    RequestSubmitted,
    TokenLogEvent,
    TokenLogprobs,
    TokensGenerated,
)
from schemas.ids import response_id_of
from schemas.token_log import TokenLog

CREATED = "response.created"
QUEUED = "response.queued"
IN_PROGRESS = "response.in_progress"
ITEM_ADDED = "response.output_item.added"
PART_ADDED = "response.content_part.added"
DELTA = "response.output_text.delta"
TEXT_DONE = "response.output_text.done"
PART_DONE = "response.content_part.done"
ITEM_DONE = "response.output_item.done"
TERMINAL_TYPES = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})

ClientEvent = dict[str, Any]
dump_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class ResponseStream:
    """State of one response. `apply` the log's events in order; read client events by sequence number."""

    def __init__(self, request: RequestSubmitted) -> None:
        self.request = request
        self.response_id = response_id_of(request.request_id)
        self.log = TokenLog()
        self._begun = False
        self._head: list[str] = [CREATED]
        self._deltas: list[str] = []
        self._chars: list[int] = []  # text length up to the end of each delta
        self._told: list[int] = []  # log probabilities up to the end of each delta
        self._tail: tuple[str, ...] = ()
        place = {"response_id": self.response_id, **self._item_place()}
        self._delta_prefix = dump_json({"type": DELTA, **place})[:-1] + ',"logprobs":'

    def apply(self, event: TokenLogEvent) -> bool:
        """Take the log's next event. True if client events were added."""
        counted = self.log.apply(event)
        if counted is None:
            return False
        if isinstance(counted, TokensGenerated):
            began = self._begin()
            if not counted.text:
                return began
            self._deltas.append(counted.text)
            self._chars.append(self.log.text_chars)
            self._told.append(len(self.log.logprobs))
            return True
        if isinstance(counted, RequestAdmitted):
            self._head.append(QUEUED)
            return True
        if isinstance(counted, GenerationStarted):
            return self._begin()
        self._end()
        return True

    @property
    def next_sequence_number(self) -> int:
        """One more than the last event's."""
        return len(self._head) + len(self._deltas) + len(self._tail)

    @property
    def finished(self) -> bool:
        """The last event is there: none will follow."""
        return bool(self._tail)

    @property
    def status(self) -> str:
        """queued, in_progress, completed, incomplete, failed or cancelled."""
        if self.log.terminal is not None:
            return status_of(self.log.terminal)
        return "in_progress" if self._begun else "queued"

    @property
    def failure(self) -> GatewayError | None:
        """Why there is no (whole) answer, when the status is failed."""
        terminal = self.log.terminal
        if terminal is None or self.status != "failed":
            return None
        if isinstance(terminal, GenerationFinished):
            return TimedOut(f"the deadline passed after {terminal.output_tokens} output tokens; allow more time")
        at_fault = terminal.param if isinstance(terminal, RequestRejected) else None
        return ResponseFailed(terminal, name_at(self.request.endpoint, at_fault))

    def type_of(self, number: int) -> str:
        """Type of the event with this sequence number. Raises IndexError for one that is not there yet."""
        if number < len(self._head):
            return self._head[number]
        number -= len(self._head)
        return DELTA if number < len(self._deltas) else self._tail[number - len(self._deltas)]

    def delta(self, number: int) -> str:
        """Text of the delta with this sequence number."""
        return self._deltas[number - len(self._head)]

    def delta_logprobs(self, number: int) -> list[TokenLogprobs]:
        """Of the delta with this sequence number; empty if they were not asked for."""
        index = number - len(self._head)
        return self._spoken(self._told[index - 1] if index else 0, self._told[index])

    @property
    def logprobs(self) -> list[TokenLogprobs]:
        """Of all deltas so far."""
        return self._spoken(0, self._told[-1]) if self._told else []

    def chars_before(self, number: int) -> int:
        """Characters of text in the events before this sequence number."""
        deltas = min(number - len(self._head), len(self._deltas))
        return self._chars[deltas - 1] if deltas > 0 else 0

    def bytes_before(self, number: int) -> int:
        """About the size of text and log probabilities in the events before this sequence number."""
        deltas = min(number - len(self._head), len(self._deltas))
        if deltas <= 0:
            return 0
        return self._chars[deltas - 1] + self._told[deltas - 1] * (1 + (self.request.top_logprobs or 0)) * LOGPROB_BYTES

    def event(self, number: int) -> ClientEvent:
        """The event with this sequence number, always the same one."""
        kind = self.type_of(number)
        return {"type": kind, "response_id": self.response_id, **self._fields(kind, number), "sequence_number": number}

    def frame(self, number: int) -> str:
        """`event` as JSON. Deltas, which are nearly all of them, are put together by hand."""
        if self.type_of(number) == DELTA:
            logprobs = dump_json(content_of(self.delta_logprobs(number))) if self._told[-1] else "[]"
            return (
                f'{self._delta_prefix}{logprobs},"sequence_number":{number},"delta":{dump_json(self.delta(number))}}}'
            )
        return dump_json(self.event(number))

    def events_after(self, number: int) -> Iterator[ClientEvent]:
        """What a client that has seen this sequence number (-1: nothing) has still to see, so far."""
        return map(self.event, range(number + 1, self.next_sequence_number))

    def snapshot(self) -> dict[str, Any]:
        """The response object as it is now."""
        status = self.status
        if self.log.terminal is None:
            output = [self._item("in_progress")] if status == "in_progress" else []
            return response_object(self.request, status, output=output)
        failure = self.failure
        error = None if failure is None else failure.detail()
        output = [self._item(self._item_status())] if self._begun else []
        return response_object(self.request, status, output=output, terminal=self.log.terminal, error=error)

    def _begin(self) -> bool:
        """A worker has begun; False if that was known."""
        if self._begun:
            return False
        self._begun = True
        queued = [] if QUEUED in self._head else [QUEUED]
        self._head += [*queued, IN_PROGRESS, ITEM_ADDED, PART_ADDED]
        return True

    def _end(self) -> None:
        status = self.status
        if status in ("completed", "incomplete"):
            self._begin()
        closing = (TEXT_DONE, PART_DONE, ITEM_DONE) if self._begun else ()
        self._tail = (*closing, f"response.{status}")

    def _fields(self, kind: str, number: int) -> dict[str, Any]:
        match kind:
            case _ if kind in TERMINAL_TYPES:
                return {"response": self.snapshot()}
            case "response.created" | "response.queued":
                return {"response": response_object(self.request, "queued")}
            case "response.in_progress":
                return {"response": response_object(self.request, "in_progress")}
            case "response.output_item.added":
                return {"output_index": 0, "item": message_item(self.request.request_id, "in_progress", [])}
            case "response.content_part.added":
                return {**self._item_place(), "part": output_text("", [])}
            case "response.output_text.delta":
                logprobs = content_of(self.delta_logprobs(number))
                return {**self._item_place(), "logprobs": logprobs, "delta": self.delta(number)}
            case "response.output_text.done":
                return {**self._item_place(), "logprobs": content_of(self.logprobs), "text": self.log.text}
            case "response.content_part.done":
                return {**self._item_place(), "part": self._output_text()}
            case _:
                return {"output_index": 0, "item": self._item(self._item_status())}

    def _item_place(self) -> dict[str, Any]:
        return {"item_id": message_id_of(self.request.request_id), "output_index": 0, "content_index": 0}

    def _item_status(self) -> str:
        return "completed" if self.status == "completed" else "incomplete"

    def _item(self, status: str) -> dict[str, Any]:
        return message_item(self.request.request_id, status, [self._output_text()])

    def _output_text(self) -> dict[str, Any]:
        return output_text(self.log.text, content_of(self.logprobs))

    def _spoken(self, start: int, end: int) -> list[TokenLogprobs]:
        """Of these tokens, those that are text."""
        return [token for token in self.log.logprobs[start:end] if token.utf8]
