"""A sequence: what the scheduler knows of a request. No text, no log, no topics."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpu_consumers.engine import EngineInfo
from gpu_consumers.plan import SamplingParams
from schemas.events import AdapterRegistered


@dataclass(frozen=True, slots=True)
class Sequence:
    """One request, as tokens.

    prefix_token_ids: what is prefilled: the prompt, then the output of earlier attempts.
    resumed_tokens: how many tokens at the end of the prefix are output of earlier attempts.
    max_tokens: the most tokens, prompt and whole output together.
    deadline_at_us: the answer is worthless from then on; None: never.
    priority: higher goes first, whoever's it is.
    adapter: the LoRA adapter that answers; None: the model itself.
    adapter_registration: which one of that name, as of when the request was routed; None: the newest there is.
    """

    request_id: str
    tenant: str
    prefix_token_ids: tuple[int, ...]
    max_tokens: int
    sampling: SamplingParams = field(default_factory=SamplingParams)
    resumed_tokens: int = 0
    deadline_at_us: int | None = None
    priority: int = 0
    adapter: str | None = None
    adapter_registration: AdapterRegistered | None = None


def why_not_servable(sequence: Sequence, info: EngineInfo) -> str | None:
    """Why this engine can never run the sequence, for people; None if it can."""
    if len(sequence.prefix_token_ids) <= sequence.resumed_tokens:
        return "the prompt is empty: an answer needs at least one token to follow"
    if sequence.max_tokens > info.max_context_tokens:
        return (
            f"prompt and output may reach {sequence.max_tokens} tokens, and this worker holds "
            f"{info.max_context_tokens}: shorten the prompt or ask for less output"
        )
    if info.blocks_of(sequence.max_tokens) > info.kv_blocks:
        return (
            f"prompt and output may reach {sequence.max_tokens} tokens, and the memory of this worker holds "
            f"{info.kv_blocks * info.block_tokens}: shorten the prompt or ask for less output"
        )
    low, high = min(sequence.prefix_token_ids), max(sequence.prefix_token_ids)
    if low < 0 or high >= info.vocabulary_size:
        outside = low if low < 0 else high
        return f"token id {outside} is outside the model's vocabulary of {info.vocabulary_size}"
    return None
