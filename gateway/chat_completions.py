"""The same fold in the shape of OpenAI's Chat Completions: one object, or chunks."""

from __future__ import annotations

from typing import Any

from gateway.response_object import cached_tokens, token_counts
from gateway.response_stream import DELTA, PART_ADDED, TERMINAL_TYPES, ResponseStream, dump_json
from schemas.events import GenerationFinished, TerminalEvent
from schemas.ids import created_ms_of, response_id_of

DONE = "[DONE]"


class ChatCompletion:
    """A view of a response. `frames` gives what an SSE client sees for one client event of the stream.

    include_usage: a last chunk without choices tells the token counts, and every other one has `usage: null`.
    """

    object, chunk_object, id_prefix = "chat.completion", "chat.completion.chunk", "chatcmpl-"

    def __init__(self, stream: ResponseStream, *, include_usage: bool = False) -> None:
        self.stream = stream
        self._include_usage = include_usage

    def frames(self, number: int) -> list[str]:
        """SSE data for the event with this sequence number: none, one or several chunks; `[DONE]` ends them."""
        kind = self.stream.type_of(number)
        if kind == PART_ADDED:
            return self._opening()
        if kind == DELTA:
            return [self._chunk(self._piece(self.stream.delta(number)))]
        terminal = self.stream.log.terminal
        if terminal is None or kind not in TERMINAL_TYPES:
            return []
        failure = self.stream.failure
        if failure is not None:
            return [dump_json(failure.body(self.stream.request.request_id)), DONE]
        last = self._chunk(self._piece(None), finish_reason_of(terminal))
        if not self._include_usage:
            return [last, DONE]
        return [last, dump_json({**self._base(self.chunk_object), "choices": [], "usage": usage_of(terminal)}), DONE]

    def whole(self) -> dict[str, Any]:
        """The finished answer. Call it when the stream has finished without a failure."""
        terminal = self.stream.log.terminal
        assert terminal is not None
        choice = {**self._answer(self.stream.log.text), "index": 0, "logprobs": None}
        choice["finish_reason"] = finish_reason_of(terminal)
        return {**self._base(self.object), "choices": [choice], "usage": usage_of(terminal)}

    def _opening(self) -> list[str]:
        return [self._chunk({"delta": {"role": "assistant", "content": ""}})]

    def _piece(self, text: str | None) -> dict[str, Any]:
        return {"delta": {} if text is None else {"content": text}}

    def _answer(self, text: str) -> dict[str, Any]:
        return {"message": {"role": "assistant", "content": text, "refusal": None}}

    def _chunk(self, piece: dict[str, Any], finish_reason: str | None = None) -> str:
        choice = {"index": 0, **piece, "logprobs": None, "finish_reason": finish_reason}
        chunk = {**self._base(self.chunk_object), "choices": [choice]}
        return dump_json({**chunk, "usage": None} if self._include_usage else chunk)

    def _base(self, kind: str) -> dict[str, Any]:
        request = self.stream.request
        return {
            "id": response_id_of(request.request_id, self.id_prefix),
            "object": kind,
            "created": created_ms_of(request.request_id) // 1000,
            "model": request.model,
            "service_tier": "default",
            "system_fingerprint": None,
        }


class TextCompletion(ChatCompletion):
    """The legacy Completions shape."""

    object, chunk_object, id_prefix = "text_completion", "text_completion", "cmpl-"

    def _opening(self) -> list[str]:
        return []

    def _piece(self, text: str | None) -> dict[str, Any]:
        return {"text": text or ""}

    def _answer(self, text: str) -> dict[str, Any]:
        return {"text": text}


def finish_reason_of(terminal: TerminalEvent) -> str:
    """stop or length as OpenAI has them, and cancelled, which only the client itself can cause."""
    assert isinstance(terminal, GenerationFinished)
    return terminal.finish_reason


def usage_of(terminal: TerminalEvent) -> dict[str, Any]:
    prompt, output = token_counts(terminal)
    return {
        "prompt_tokens": prompt,
        "prompt_tokens_details": {"cached_tokens": cached_tokens(terminal)},
        "completion_tokens": output,
        "total_tokens": prompt + output,
    }
