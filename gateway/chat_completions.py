"""The same fold in the shape of OpenAI's Chat Completions: one object, or chunks.

`n` choices are `n` responses, each with an id, a log and an end of its own. Here they are one answer under the id of
the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.logprobs import columns_of, content_of
from gateway.response_object import cached_tokens
from gateway.response_stream import DELTA, PART_ADDED, TERMINAL_TYPES, ResponseStream, dump_json
from schemas.events import GenerationFinished, TerminalEvent, TokenLogprobs
from schemas.ids import created_ms_of, response_id_of
from schemas.usage import charged_tokens

DONE = "[DONE]"


class ChatCompletion:
    """A view of a response for each choice. `frames` gives what an SSE client sees for one client event of one.

    include_usage: a last chunk without choices tells the token counts, and every other one has `usage: null`.
    """

    object, chunk_object, id_prefix = "chat.completion", "chat.completion.chunk", "chatcmpl-"

    def __init__(self, choices: Sequence[ResponseStream], *, include_usage: bool = False) -> None:
        self.choices = choices
        self._include_usage = include_usage

    def frames(self, index: int, number: int) -> list[str]:
        """SSE data for the event of this choice with this sequence number: a chunk, or nothing."""
        stream = self.choices[index]
        kind = stream.type_of(number)
        if kind == PART_ADDED:
            return self._opening(index)
        if kind == DELTA:
            logprobs = self._logprobs(stream, stream.delta_logprobs(number), stream.chars_before(number))
            return [self._chunk(index, self._piece(stream.delta(number)), logprobs=logprobs)]
        terminal = stream.log.terminal
        if terminal is None or kind not in TERMINAL_TYPES:
            return []
        failure = stream.failure
        if failure is not None:
            return [dump_json(failure.body(stream.request.request_id))]
        return [self._chunk(index, self._piece(None), finish_reason=finish_reason_of(terminal))]

    def closing(self) -> list[str]:
        """SSE data behind the last chunk of all: the usage, if there is an answer that it is of, and `[DONE]`."""
        if not self._include_usage or any(stream.failure for stream in self.choices):
            return [DONE]
        return [dump_json({**self._base(self.chunk_object), "choices": [], "usage": self._usage()}), DONE]

    def whole(self) -> dict[str, Any]:
        """The finished answer. Call it when all choices have finished, none with a failure."""
        choices = [self._choice(index, stream) for index, stream in enumerate(self.choices)]
        return {**self._base(self.object), "choices": choices, "usage": self._usage()}

    def _choice(self, index: int, stream: ResponseStream) -> dict[str, Any]:
        assert stream.log.terminal is not None
        return {
            **self._answer(stream.log.text),
            "index": index,
            "logprobs": self._logprobs(stream, stream.logprobs, 0),
            "finish_reason": finish_reason_of(stream.log.terminal),
        }

    def _opening(self, index: int) -> list[str]:
        return [self._chunk(index, {"delta": {"role": "assistant", "content": ""}})]

    def _piece(self, text: str | None) -> dict[str, Any]:
        return {"delta": {} if text is None else {"content": text}}

    def _answer(self, text: str) -> dict[str, Any]:
        return {"message": {"role": "assistant", "content": text, "refusal": None}}

    def _logprobs(
        self, stream: ResponseStream, tokens: Sequence[TokenLogprobs], offset_chars: int
    ) -> dict[str, Any] | None:
        """None where they were not asked for. offset_chars: of the first token in the text."""
        if stream.request.top_logprobs is None:
            return None
        return {"content": content_of(tokens), "refusal": None}

    def _chunk(
        self,
        index: int,
        piece: dict[str, Any],
        *,
        logprobs: dict[str, Any] | None = None,
        finish_reason: str | None = None,
    ) -> str:
        choice = {"index": index, **piece, "logprobs": logprobs, "finish_reason": finish_reason}
        chunk = {**self._base(self.chunk_object), "choices": [choice]}
        return dump_json({**chunk, "usage": None} if self._include_usage else chunk)

    def _base(self, kind: str) -> dict[str, Any]:
        request = self.choices[0].request
        return {
            "id": response_id_of(request.request_id, self.id_prefix),
            "object": kind,
            "created": created_ms_of(request.request_id) // 1000,
            "model": request.model,
            "service_tier": "default",
            "system_fingerprint": None,
        }

    def _usage(self) -> dict[str, Any]:
        return usage_of([stream.log.terminal for stream in self.choices if stream.log.terminal is not None])


class TextCompletion(ChatCompletion):
    """The legacy Completions shape."""

    object, chunk_object, id_prefix = "text_completion", "text_completion", "cmpl-"

    def _opening(self, index: int) -> list[str]:
        return []

    def _piece(self, text: str | None) -> dict[str, Any]:
        return {"text": text or ""}

    def _answer(self, text: str) -> dict[str, Any]:
        return {"text": text}

    def _logprobs(
        self, stream: ResponseStream, tokens: Sequence[TokenLogprobs], offset_chars: int
    ) -> dict[str, Any] | None:
        return None if stream.request.top_logprobs is None else columns_of(tokens, offset_chars)


def finish_reason_of(terminal: TerminalEvent) -> str:
    """stop or length as OpenAI has them, and cancelled, which only the client itself can cause."""
    assert isinstance(terminal, GenerationFinished)
    return terminal.finish_reason


def usage_of(terminals: Sequence[TerminalEvent]) -> dict[str, Any]:
    """Of all choices together, as the quota has it: each has read the prompt."""
    counts = [charged_tokens(terminal) for terminal in terminals]
    prompt, output = sum(prompt for prompt, _ in counts), sum(output for _, output in counts)
    return {
        "prompt_tokens": prompt,
        "prompt_tokens_details": {"cached_tokens": sum(map(cached_tokens, terminals))},
        "completion_tokens": output,
        "total_tokens": prompt + output,
    }
