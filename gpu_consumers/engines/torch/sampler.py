"""From logits to tokens: what each sequence asks for beyond a draw, and what has to be remembered of it for that.

What is remembered is a function of the tokens that were fed (prefilled, cached, decoded) and of how many of them are
the prompt's: a sequence whose output so far is prefilled goes on with the text that it would have had.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from gpu_consumers.engines.slots import StepWork
from gpu_consumers.grammar import GrammarCompiler, Matcher
from gpu_consumers.logprobs import logprobs_of
from gpu_consumers.penalties import LogitBias, TokenCounts, counts_for, penalize
from gpu_consumers.plan import Admission, Logprobs, SamplingParams, StepPlan, StepResult
from gpu_consumers.sampling import Draw, sample

_NOT_NUMBERS: Final = "the model gave logits that are not numbers (NaN or infinity)"
_NOTHING_LEFT: Final = "its logit bias, penalties and JSON schema leave no token that could be drawn"
NOT_GUIDED: Final = "this engine was not given the model's tokenizer, so it can hold no answer to a JSON schema"

_PLAIN_DRAWS: Final = (
    SamplingParams(),
    SamplingParams(1.0),
    SamplingParams(1.0, top_p=0.9),
    SamplingParams(1.0, top_k=8),
    SamplingParams(1.0, min_p=0.1),
)
"""One of each kind, among those that ask for nothing else."""

_SHAPED_DRAWS: Final = (
    SamplingParams(repetition_penalty=1.1, presence_penalty=0.1, frequency_penalty=0.1, logit_bias=((0, -1.0),)),
    SamplingParams(top_logprobs=1),
)
_GREEDY: Final = Draw(SamplingParams(), 0)
_GUIDED_DRAW: Final = SamplingParams(json_schema='{"type": "object"}')


@dataclass(slots=True)
class _Shaped:
    """A sequence that asks for more than a draw. fed: tokens so far."""

    sampling: SamplingParams
    prompt_tokens: int | None
    counts: TokenCounts | None
    bias: LogitBias | None
    matcher: Matcher | None
    fed: int = 0

    @property
    def changes_logits(self) -> bool:
        return self.counts is not None or self.bias is not None or self.matcher is not None

    def feed(self, token_ids: Sequence[int], *, decoded: bool) -> None:
        """decoded: sampled here. Of what is prefilled, all behind the prompt was output of an earlier attempt."""
        ends = self.fed + len(token_ids) if self.prompt_tokens is None else self.prompt_tokens
        prompt = 0 if decoded else min(max(0, ends - self.fed), len(token_ids))
        self.fed += len(token_ids)
        if self.counts is not None:
            self.counts.add(token_ids[:prompt], output=False)
            self.counts.add(token_ids[prompt:], output=True)
        if self.matcher is not None and prompt < len(token_ids):
            self.matcher.read(token_ids[prompt:])


class Sampler:
    """Sequences that ask for a draw alone are not known here, and cost nothing."""

    def __init__(self, device: torch.device, grammars: GrammarCompiler | None = None) -> None:
        self._device = device
        self._grammars = grammars
        self._shaped: dict[int, _Shaped] = {}

    @property
    def kinds(self) -> tuple[SamplingParams, ...]:
        """One of each kind of draw that there is here."""
        return (*_PLAIN_DRAWS, *_SHAPED_DRAWS, *([] if self._grammars is None else [_GUIDED_DRAW]))

    def begin(self, plan: StepPlan, failed: Container[int]) -> dict[int, str]:
        """Release and admit as planned, all but what failed already. The reasons of those that can't be served."""
        for slot in plan.released:
            self._shaped.pop(slot, None)
        reasons: dict[int, str] = {}
        for admission in plan.admitted:
            if admission.slot not in failed and (reason := self._admit(admission)) is not None:
                reasons[admission.slot] = reason
        return reasons

    def _admit(self, admission: Admission) -> str | None:
        sampling, matcher = admission.sampling, None
        if sampling.json_schema is not None:
            if self._grammars is None:
                return NOT_GUIDED
            grammar = self._grammars.grammar(sampling.json_schema)
            if grammar.refusal is not None:
                return f"no answer can be held to this JSON schema: {grammar.refusal}"
            matcher = grammar.matcher()
        bias = LogitBias(sampling.logit_bias, self._device) if sampling.logit_bias else None
        shaped = _Shaped(sampling, admission.prompt_tokens, counts_for(sampling), bias, matcher)
        if shaped.changes_logits or sampling.top_logprobs is not None:
            shaped.feed(admission.cached_token_ids, decoded=False)
            self._shaped[admission.slot] = shaped
        return None

    def feed(self, work: StepWork) -> None:
        """What a step runs, before it is drawn from."""
        if not self._shaped:
            return
        for chunk in work.prefills:
            if (shaped := self._shaped.get(chunk.slot)) is not None:
                shaped.feed(chunk.token_ids, decoded=False)
        for decode in work.decodes:
            if (shaped := self._shaped.get(decode.slot)) is not None:
                shaped.feed((decode.token_id,), decoded=True)

    def draw(self, logits: Tensor, slots: Sequence[int], draws: Sequence[Draw]) -> StepResult:
        """A token, or a reason why there is none, for each slot; `logits` [slots, vocabulary] stay as they are."""
        asking = {row: self._shaped[slot] for row, slot in enumerate(slots) if slot in self._shaped}
        reasons: dict[int, str] = {}
        tokens = self._sample(logits, draws, {row: s for row, s in asking.items() if s.changes_logits}, reasons)
        logprobs = _logprobs(logits, tokens, {row: s.sampling.top_logprobs for row, s in asking.items()})
        return StepResult(
            tokens={slots[row]: token for row, token in enumerate(tokens) if token is not None},
            failures={slots[row]: reasons.get(row, _NOT_NUMBERS) for row, token in enumerate(tokens) if token is None},
            logprobs={slots[row]: told for row, told in logprobs.items()},
        )

    def _sample(
        self, logits: Tensor, draws: Sequence[Draw], shaped: dict[int, _Shaped], reasons: dict[int, str]
    ) -> list[int | None]:
        """Rows whose logits are changed are drawn apart, from a copy in float32, as in transformers."""
        if not shaped:
            return sample(logits, draws)
        # All rows together, without a copy: of the changed ones this tells whether the model gave numbers.
        tokens = sample(logits, [_GREEDY if row in shaped else draw for row, draw in enumerate(draws)])
        rows = [row for row in shaped if tokens[row] is not None]
        if not rows:
            return tokens
        changed = logits[rows].float()
        _shape(changed, [shaped[row] for row in rows])
        for row, token in zip(rows, sample(changed, [draws[row] for row in rows]), strict=True):
            tokens[row] = token
            if token is None:
                reasons[row] = _failure_of(shaped[row])
        return tokens


def _failure_of(shaped: _Shaped) -> str:
    failure = None if shaped.matcher is None else shaped.matcher.failure
    return _NOTHING_LEFT if failure is None else failure


def _shape(logits: Tensor, shaped: Sequence[_Shaped]) -> None:
    """In place: logit bias, penalties, grammar."""
    for row, asking in enumerate(shaped):
        if asking.bias is not None:
            asking.bias.add_to(logits[row])
    counted = [(row, s.counts, s.sampling) for row, s in enumerate(shaped) if s.counts is not None]
    if counted:
        penalize(logits, *zip(*counted, strict=True))
    guided = [(row, s.matcher) for row, s in enumerate(shaped) if s.matcher is not None]
    if guided:
        allow(logits, [row for row, _ in guided], [matcher.allowed() for _, matcher in guided])


def allow(logits: Tensor, rows: Sequence[int], allowed: Sequence[bytes]) -> None:
    """In place: -inf for every token of these rows but those whose bit is set. No bytes stand for no tokens."""
    size = logits.shape[-1]
    length = -(-size // 8)
    joined = bytearray(b"".join(mask[:length].ljust(length, b"\0") for mask in allowed))
    masks = torch.frombuffer(joined, dtype=torch.uint8).view(len(rows), length, 1).to(logits.device)
    bits = masks >> torch.arange(8, dtype=torch.uint8, device=logits.device)
    absent = (bits & 1).view(len(rows), -1)[:, :size] == 0
    logits[rows] = logits[rows].masked_fill_(absent, float("-inf"))


def _logprobs(logits: Tensor, tokens: Sequence[int | None], asked: dict[int, int | None]) -> dict[int, Logprobs]:
    """Of the rows that ask and have a token, from the logits as the model gave them."""
    told = [(row, token, top) for row, top in asked.items() if top is not None and (token := tokens[row]) is not None]
    if not told:
        return {}
    rows, chosen, tops = zip(*told, strict=True)
    return dict(zip(rows, logprobs_of(logits[list(rows)], chosen, tops), strict=True))
