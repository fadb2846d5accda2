"""Clients that believe nothing: each event of an answer must be the very next one, and each delta must fit the text."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from eventlog.clock import monotonic
from tests.timing import within

ENDS = {"response.completed", "response.incomplete", "response.cancelled", "response.failed"}
_PATIENCE_SECONDS = 60.0


@dataclass(slots=True)
class Answer:
    """What one client was told of one response. longest_pause_s: between two events, from its first token on."""

    response_id: str = ""
    text: str = ""
    end: dict[str, Any] = field(default_factory=dict)
    events: int = 0
    deltas: int = 0
    longest_pause_s: float = 0.0

    def take(self, event: dict[str, Any], pause_s: float) -> None:
        """Fails the test for an event that is lost, repeated or out of order."""
        assert event["sequence_number"] == self.events, f"{event} is not event {self.events}"
        self.events += 1
        if self.deltas:
            self.longest_pause_s = max(self.longest_pause_s, pause_s)
        match event["type"]:
            case "response.created":
                self.response_id = event["response"]["id"]
            case "response.output_text.delta":
                self.text += event["delta"]
                self.deltas += 1
            case "response.output_text.done":
                assert event["text"] == self.text
            case kind if kind in ENDS:
                self.end = event


async def ask(socket: ClientConnection, request: dict[str, Any]) -> Answer:
    """One answer, from its request to its end."""
    await socket.send(json.dumps({"type": "response.create", **request}))
    answer, newest = Answer(), monotonic()
    while not answer.end:
        try:
            event: dict[str, Any] = json.loads(await asyncio.wait_for(socket.recv(), within(_PATIENCE_SECONDS)))
        except TimeoutError:
            raise AssertionError(f"{answer.response_id} stands still behind {answer.events} events") from None
        assert event["type"] != "error", event
        if "sequence_number" in event:
            newest, before = monotonic(), newest
            answer.take(event, newest - before)
    return answer


async def keep_asking(
    url: str, key: str, requests: Sequence[dict[str, Any]], goes_on: Callable[[], bool]
) -> list[Answer]:
    """One answer after the other on one socket, at least one."""
    answers: list[Answer] = []
    async with connect(url, additional_headers={"authorization": f"Bearer {key}"}) as socket:
        while not answers or goes_on():
            answers.append(await ask(socket, requests[len(answers) % len(requests)]))
    return answers
