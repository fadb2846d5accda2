"""What a step must read and compute, whoever runs it: bytes of weights, keys and values, and arithmetic. Pure.

Counted as in the roofline model (Williams, Waterman, Patterson, CACM 2009): every weight is read once in a step,
however many tokens share it, keys and values once for each sequence; a multiply and an add are two operations.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpu_consumers.plan import StepPlan


@dataclass(frozen=True, slots=True)
class ModelCosts:
    """body_weights: in the matrices of all layers. head_weights: in the one that makes logits.

    weight_bytes: of one weight. kv_bytes_per_token: keys and values of one token in all layers.
    attention_flops: for one pair of a token and one that it attends to, in all layers.
    """

    body_weights: int
    head_weights: int
    weight_bytes: float
    kv_bytes_per_token: int
    attention_flops: int

    @property
    def weights_bytes(self) -> float:
        """What one step reads of weights, if it samples at all."""
        return (self.body_weights + self.head_weights) * self.weight_bytes


@dataclass(frozen=True, slots=True)
class StepNeeds:
    """bytes: to and from memory, of which kv_bytes for keys and values. flops: floating-point operations."""

    bytes: float = 0.0
    kv_bytes: float = 0.0
    flops: float = 0.0


def needs_of(plan: StepPlan, costs: ModelCosts) -> StepNeeds:
    """Of one step that runs the whole plan."""
    tokens = len(plan.decodes)
    outputs = len(plan.decodes) + sum(1 for chunk in plan.prefills if chunk.last)
    held = sum(decode.position + 1 for decode in plan.decodes)  # tokens whose keys and values are read
    pairs = held
    for chunk in plan.prefills:
        count = len(chunk.token_ids)
        tokens += count
        held += chunk.start + count
        pairs += count * chunk.start + count * (count + 1) // 2
    if not tokens:
        return StepNeeds()
    head = costs.head_weights if outputs else 0
    kv_bytes = float(held * costs.kv_bytes_per_token)
    return StepNeeds(
        bytes=(costs.body_weights + head) * costs.weight_bytes + kv_bytes,
        kv_bytes=kv_bytes,
        flops=2.0 * (tokens * costs.body_weights + outputs * head) + float(pairs * costs.attention_flops),
    )
