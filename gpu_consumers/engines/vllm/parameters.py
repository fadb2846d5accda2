"""Our sampling parameters in vLLM's words. Pure."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

from gpu_consumers.plan import Admission, SamplingParams

_SEED_BITS = 63


def why_not_runnable(admission: Admission) -> str | None:
    """Why vLLM can't run it right, for people; None if it can."""
    if admission.sampling.json_schema is not None and admission.first_output_index:
        return (
            "an answer that obeys a JSON schema can't go on behind its first tokens on the vllm engine, whose grammar "
            "begins anew: send the request again"
        )
    return None


def sampling_arguments(admission: Admission, prefix: Sequence[int], max_tokens: int) -> dict[str, Any]:
    """Keyword arguments of vLLM's SamplingParams, but for the output kind and structured outputs.

    prefix: all that is prefilled. max_tokens: the most that may be sampled.
    The end of an answer is the worker's business: vLLM goes on behind it until it is told to stop.
    """
    sampling = admission.sampling
    bias = _logit_bias(sampling, prefix[_prompt_tokens(admission, prefix) :])
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "seed": vllm_seed(sampling.seed, admission.first_output_index),
        "repetition_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "logit_bias": bias or None,
        "logprobs": sampling.top_logprobs,
        "max_tokens": max_tokens,
        "ignore_eos": True,
        "detokenize": False,
    }


def vllm_seed(seed: int, first_output_index: int) -> int:
    """vLLM draws all tokens of a request from one generator, so what goes on behind k tokens gets a seed of its own:
    with that of the beginning its draws would be those of the first tokens again."""
    text = f"{seed}/{first_output_index}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) >> (64 - _SEED_BITS)


def cache_salt(tenant: str, adapter: str | None) -> str | None:
    """What keeps the prefix cache of one tenant from all others; None: nobody's, and shared with nobody's."""
    return f"{tenant}/{adapter or ''}" if tenant or adapter else None


def _prompt_tokens(admission: Admission, prefix: Sequence[int]) -> int:
    if admission.prompt_tokens is not None:
        return admission.prompt_tokens
    return len(prefix)


def _logit_bias(sampling: SamplingParams, earlier_output: Sequence[int]) -> dict[int, float]:
    """The request's own, less the penalties of output that earlier attempts made and that is prompt for vLLM.

    A token that stood there and comes again pays the presence penalty twice.
    """
    bias = dict(sampling.logit_bias)
    if sampling.presence_penalty or sampling.frequency_penalty:
        for token_id, times in Counter(earlier_output).items():
            penalty = sampling.presence_penalty + times * sampling.frequency_penalty
            bias[token_id] = bias.get(token_id, 0.0) - penalty
    return bias
