"""The echo engine: says the prompt back at a set rate. No weights, so a test or a bench sees the pipeline alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from gpu_consumers.engine import EngineInfo, KvUse
from gpu_consumers.engines.slots import SlotTable
from gpu_consumers.plan import StepPlan, StepResult

BYTE_VOCABULARY_SIZE: Final = 257
"""Token ids 0 to 255 are bytes and 256 ends an answer: the vocabulary of the byte tokenizer."""

_NOT_GUIDED: Final = "the echo engine says the prompt back: it can hold no answer to a JSON schema"


class EchoEngine:
    """Output token i is prompt token i modulo the prompt's length, whatever shares the batch.

    A resumed sequence (`first_output_index` = k > 0) prefills its prompt and the k tokens that were emitted
    before; the echo goes on with token k of the same prompt. Sampling parameters change nothing, there are no log
    probabilities, and a JSON schema is refused.

    tokens_per_second: the rate of one sequence (0: as fast as it is asked). A step that decodes starts no
        sooner than 1 / tokens_per_second after the start of the last step that yielded a token.
    eos_token_ids: none by default: an echo ends at its token limit.
    clock, wait: seconds now, and a wait of so many seconds; tests pass their own.
    """

    def __init__(
        self,
        *,
        slots: int = 64,
        max_context_tokens: int = 8192,
        max_step_tokens: int = 8192,
        tokens_per_second: float = 0.0,
        eos_token_ids: frozenset[int] = frozenset(),
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self._info = EngineInfo(
            name="echo",
            slots=slots,
            max_context_tokens=max_context_tokens,
            max_step_tokens=max_step_tokens,
            vocabulary_size=BYTE_VOCABULARY_SIZE,
            eos_token_ids=eos_token_ids,
        )
        self._slots = SlotTable(self._info)
        self._prompts: dict[int, list[int]] = {}
        self._step_seconds = 1.0 / tokens_per_second if tokens_per_second > 0 else 0.0
        self._clock = clock
        self._wait = threading.Event().wait if wait is None else wait
        self._next_decode_at = float("-inf")

    @property
    def info(self) -> EngineInfo:
        return self._info

    def warm_up(self) -> None:
        """Nothing to warm."""

    def execute(self, plan: StepPlan) -> StepResult:
        for slot in plan.released:
            self._prompts.pop(slot, None)
        work = self._slots.begin(plan)
        failures = dict(work.failures)
        self._refuse_guided(plan, failures)
        work = work.without(failures)
        tokens: dict[int, int] = {}
        for chunk in work.prefills:
            self._prompts.setdefault(chunk.slot, []).extend(chunk.token_ids)
            if chunk.last:
                self._forget_emitted(chunk.slot, failures)
        yielding = [chunk.slot for chunk in work.prefills if chunk.last] + [decode.slot for decode in work.decodes]
        for slot in yielding:
            if slot not in failures:
                prompt = self._prompts[slot]
                tokens[slot] = prompt[self._slots.next_output_index(slot) % len(prompt)]
        if tokens:
            self._keep_pace(decoding=bool(work.decodes))
        return StepResult(tokens, failures)

    def cached_tokens(self, tenant: str, token_ids: Sequence[int], adapter: str | None = None) -> int:
        """None: it remembers nobody."""
        return 0

    def kv_use(self) -> KvUse:
        """None: it keeps prompts, no keys and values."""
        return KvUse()

    def close(self) -> None:
        self._prompts.clear()

    def _refuse_guided(self, plan: StepPlan, failures: dict[int, str]) -> None:
        for admission in plan.admitted:
            if admission.sampling.json_schema is not None and admission.slot not in failures:
                failures[admission.slot] = _NOT_GUIDED
                self._slots.fail(admission.slot, _NOT_GUIDED)

    def _forget_emitted(self, slot: int, failures: dict[int, str]) -> None:
        """Leave of the prefilled tokens the prompt alone: what earlier attempts emitted stands at its end."""
        emitted = self._slots[slot].output_index
        prompt = self._prompts[slot]
        if emitted >= len(prompt):
            failures[slot] = f"{len(prompt)} tokens prefilled, of which {emitted} were output: no prompt is left"
            self._slots.fail(slot, failures[slot])
        elif emitted:
            del prompt[-emitted:]

    def _keep_pace(self, *, decoding: bool) -> None:
        now = self._clock()
        if decoding and now < self._next_decode_at:
            self._wait(self._next_decode_at - now)
            now = self._next_decode_at
        self._next_decode_at = now + self._step_seconds
