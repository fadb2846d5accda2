"""The border between scheduler and engine: what to run in one step, as plain data.

The scheduler decides, the engine executes. A plan names KV slots, never requests: a slot is a row of KV
memory that holds one sequence, handed out by the scheduler (`admitted`) and taken back by it (`released`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is drawn.

    temperature: 0 is greedy; otherwise logits are divided by it.
    top_p: in (0, 1]; the smallest set of tokens whose probability reaches it is kept.
    top_k: 0 keeps all; otherwise the k likeliest tokens are kept.
    seed: always set. The draw for the token at output index i depends on (seed, i) alone: neither on who shares
        the batch nor on which worker draws it, so that another worker can go on after a crash.
    min_p: in [0, 1]; tokens less likely than this share of the likeliest one's probability are left out.
    repetition_penalty: above 0; logits of tokens that stand in prompt or output are divided by it where positive and
        multiplied where negative.
    presence_penalty, frequency_penalty: taken off the logit of a token that stands in the output: once, and as often
        as it stands there.
    logit_bias: (token id, what is added to its logit), before all else.
    top_logprobs: how many of the likeliest tokens are told with the drawn one's log probability; None: no log
        probabilities at all.
    json_schema: JSON Schema, as JSON text, that the output obeys from its first token to its last; None: free text.

    Order: logit bias, penalties, grammar, temperature, top-k, top-p, min-p. Greedy takes what is likeliest behind the
    first three.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    top_logprobs: int | None = None
    json_schema: str | None = None


@dataclass(frozen=True, slots=True)
class Admission:
    """A sequence takes a slot before its first prefill chunk.

    max_tokens: the most tokens (prompt and output) that the slot will hold: what the engine may reserve for it.
    first_output_index: index in the response of the first token that will be sampled: 0, or the number of
        tokens that earlier attempts have put in the log (they are part of the prefilled tokens then).
    tenant: keys and values are shared with other sequences of the same tenant, and with nobody else's.
    cached_token_ids: the first tokens, which the engine holds already (`Engine.cached_tokens` said so for this very
        plan): they are computed from the start, and prefill goes on behind them.
    prompt_tokens: how many of the first tokens are the prompt's; those that follow, whether prefilled or decoded, are
        output: penalties count them and a grammar has read them. None: all that is prefilled is prompt.
    adapter: the LoRA adapter that answers; None: the model itself. Keys and values are shared within it alone.
    """

    slot: int
    sampling: SamplingParams
    max_tokens: int
    first_output_index: int = 0
    tenant: str = ""
    cached_token_ids: tuple[int, ...] = ()
    prompt_tokens: int | None = None
    adapter: str | None = None


@dataclass(frozen=True, slots=True)
class PrefillChunk:
    """Run these tokens at positions [start, start + len(token_ids)) of the slot.

    Only the `last` chunk of a prompt yields a token.
    """

    slot: int
    token_ids: tuple[int, ...]
    start: int
    last: bool


@dataclass(frozen=True, slots=True)
class Decode:
    """Feed the slot its newest token (sampled in an earlier step) and sample the one after it."""

    slot: int
    token_id: int
    position: int


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step. Order of execution: released, admitted, then prefills and decodes together.

    A slot appears at most once among prefills and decodes.
    """

    released: tuple[int, ...] = ()
    admitted: tuple[Admission, ...] = ()
    prefills: tuple[PrefillChunk, ...] = ()
    decodes: tuple[Decode, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.released or self.admitted or self.prefills or self.decodes)


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Natural logarithms of probabilities as the model gave them: before temperature, penalties and filters.

    chosen: of the token that was drawn. top: (token id, its own) of the likeliest tokens, the likeliest first.
    """

    chosen: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class StepResult:
    """What the step yielded, by slot.

    tokens: the sampled token of every decode and every last prefill chunk.
    failures: slots that could not be run (NaN logits, token id out of range, ...) with the reason; a slot is in
        `tokens` or in `failures`, never in both. The scheduler releases failed slots in the next plan.
    logprobs: of those among `tokens` whose sequence asked for them.
    deferred: slots with a part in the plan that was not run, because memory for the step ran out. What they held is of
        no use; they are neither in `tokens` nor in `failures`. The scheduler releases them in the next plan, makes
        steps smaller, and runs their sequences again.
    """

    tokens: Mapping[int, int] = field(default_factory=dict)
    failures: Mapping[int, str] = field(default_factory=dict)
    logprobs: Mapping[int, Logprobs] = field(default_factory=dict)
    deferred: frozenset[int] = frozenset()
