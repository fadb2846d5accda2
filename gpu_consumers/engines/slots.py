"""What an engine knows of its slots, and which parts of a plan can be run: pure bookkeeping, no tensors.

A part that cannot be run fails its own slot with a reason, and the rest of the plan goes on.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Final

from gpu_consumers.engine import EngineInfo
from gpu_consumers.plan import Admission, Decode, PrefillChunk, SamplingParams, StepPlan

MAX_TOP_LOGPROBS: Final = 20


@dataclass(slots=True)
class Slot:
    """One admitted sequence.

    computed_tokens: tokens that have been run; the next one goes to this position.
    output_index: index in the response of the next token to be sampled.
    failure: why the sequence can't go on; it stays failed until the slot is released.
    """

    sampling: SamplingParams
    max_tokens: int
    output_index: int
    computed_tokens: int = 0
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class StepWork:
    """The runnable part of a plan, and the reasons why the rest is not."""

    prefills: tuple[PrefillChunk, ...]
    decodes: tuple[Decode, ...]
    failures: dict[int, str]

    @property
    def slots(self) -> frozenset[int]:
        """That have a part in it."""
        return frozenset(part.slot for part in self.prefills + self.decodes)

    @property
    def tokens(self) -> int:
        return len(self.decodes) + sum(len(chunk.token_ids) for chunk in self.prefills)

    def without(self, failed: Container[int]) -> StepWork:
        """The same but for these slots."""
        return replace(
            self,
            prefills=tuple(chunk for chunk in self.prefills if chunk.slot not in failed),
            decodes=tuple(decode for decode in self.decodes if decode.slot not in failed),
        )


class SlotTable:
    """The slots of one engine by number."""

    def __init__(self, info: EngineInfo) -> None:
        self._info = info
        self._slots: dict[int, Slot] = {}

    def __getitem__(self, slot: int) -> Slot:
        """Raises KeyError for a slot that holds no sequence."""
        return self._slots[slot]

    @property
    def computed_tokens(self) -> int:
        """Of all sequences together, those aside that have failed: nothing is kept for them."""
        return sum(slot.computed_tokens for slot in self._slots.values() if slot.failure is None)

    def begin(self, plan: StepPlan) -> StepWork:
        """Release and admit as planned, and choose the prefills and decodes that can be run.

        Counts the tokens of those as computed. An admission that can't be served is failed here, at once.
        """
        for released in plan.released:
            self._slots.pop(released, None)
        failures: dict[int, str] = {}
        for admission in plan.admitted:
            self._admit(admission, failures)
        seen: set[int] = set()
        prefills = [chunk for chunk in plan.prefills if self._takes(chunk, seen, failures)]
        decodes = [decode for decode in plan.decodes if self._takes(decode, seen, failures)]
        # A slot that appears twice was taken the first time and failed the second.
        return StepWork(tuple(prefills), tuple(decodes), failures).without(failures)

    def fail(self, slot: int, reason: str) -> None:
        """The slot's sequence, if it holds one, can't go on; later plans for it fail with the same reason."""
        if slot in self._slots:
            self._slots[slot].failure = reason

    def next_output_index(self, slot: int) -> int:
        """Index in the response of the token that this step samples; the next call gives the one after it."""
        state = self._slots[slot]
        state.output_index += 1
        return state.output_index - 1

    def _admit(self, admission: Admission, failures: dict[int, str]) -> None:
        reason = self._admission_refused(admission)
        if admission.slot in self._slots:
            reason = f"slot {admission.slot} is taken; release it before admitting another sequence"
            self.fail(admission.slot, reason)
        elif 0 <= admission.slot < self._info.slots:
            self._slots[admission.slot] = Slot(
                admission.sampling, admission.max_tokens, admission.first_output_index, len(admission.cached_token_ids),
                failure=reason,
            )  # fmt: skip
        if reason is not None:
            failures[admission.slot] = reason

    def _admission_refused(self, admission: Admission) -> str | None:
        if not 0 <= admission.slot < self._info.slots:
            return f"slot {admission.slot} is not one of this engine's {self._info.slots}"
        if not 0 < admission.max_tokens <= self._info.max_context_tokens:
            return (
                f"max_tokens is {admission.max_tokens}; this engine holds 1 to "
                f"{self._info.max_context_tokens} tokens in a slot"
            )
        if admission.first_output_index < 0:
            return f"first_output_index is {admission.first_output_index}; it counts from 0"
        return _sampling_refused(admission.sampling, self._info.vocabulary_size)

    def _takes(self, part: PrefillChunk | Decode, seen: set[int], failures: dict[int, str]) -> bool:
        reason = self._refused(part, seen)
        seen.add(part.slot)
        if reason is None:
            self._slots[part.slot].computed_tokens += len(_tokens(part))
            return True
        failures.setdefault(part.slot, reason)
        if part.slot in self._slots:
            self.fail(part.slot, reason)
        return False

    def _refused(self, part: PrefillChunk | Decode, seen: set[int]) -> str | None:
        state = self._slots.get(part.slot)
        if state is None:
            return f"slot {part.slot} holds no sequence; admit it first"
        if state.failure is not None:
            return state.failure
        if part.slot in seen:
            return f"slot {part.slot} appears twice in one step"
        tokens = _tokens(part)
        if not tokens:
            return "an empty prefill chunk: there is nothing to run"
        start = part.start if isinstance(part, PrefillChunk) else part.position
        if start != state.computed_tokens:
            return f"tokens at position {start}, but the slot's next position is {state.computed_tokens}"
        if start + len(tokens) > state.max_tokens:
            return f"tokens up to position {start + len(tokens) - 1} in a slot of {state.max_tokens} tokens"
        vocabulary = self._info.vocabulary_size
        if min(tokens) < 0 or max(tokens) >= vocabulary:
            outside = next(token for token in tokens if not 0 <= token < vocabulary)
            return f"token id {outside} is outside the vocabulary of {vocabulary}"
        return None


def _tokens(part: PrefillChunk | Decode) -> tuple[int, ...]:
    return part.token_ids if isinstance(part, PrefillChunk) else (part.token_id,)


def _sampling_refused(sampling: SamplingParams, vocabulary_size: int) -> str | None:
    s = sampling
    for name, value, is_allowed, allowed in (
        ("temperature", s.temperature, 0.0 <= s.temperature < inf, "a finite number from 0 up"),
        ("top_p", s.top_p, 0.0 < s.top_p <= 1.0, "in (0, 1]"),
        ("top_k", s.top_k, s.top_k >= 0, "0 (all) or more"),
        ("min_p", s.min_p, 0.0 <= s.min_p <= 1.0, "in [0, 1]"),
        ("repetition_penalty", s.repetition_penalty, 0.0 < s.repetition_penalty < inf, "a finite number above 0"),
        ("presence_penalty", s.presence_penalty, isfinite(s.presence_penalty), "a finite number"),
        ("frequency_penalty", s.frequency_penalty, isfinite(s.frequency_penalty), "a finite number"),
        ("top_logprobs", s.top_logprobs, 0 <= (s.top_logprobs or 0) <= MAX_TOP_LOGPROBS, f"0 to {MAX_TOP_LOGPROBS}"),
    ):
        if not is_allowed:
            return f"{name} is {value}; it is {allowed}"
    for token_id, bias in s.logit_bias:
        if not 0 <= token_id < vocabulary_size:
            return f"logit_bias names token {token_id}, which is outside the vocabulary of {vocabulary_size}"
        if not isfinite(bias):
            return f"logit_bias of token {token_id} is {bias}; it is a finite number"
    return None
