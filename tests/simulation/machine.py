"""The machine of the simulation: what a step takes, what it has room for, and the real books of its KV memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import torch

from gpu_consumers.engine import EngineInfo
from gpu_consumers.engines.torch.kv_memory import KvMemory, KvShape
from gpu_consumers.plan import StepPlan
from gpu_consumers.step_costs import StepCosts

# SmolLM2-135M in bf16 on two CPU cores: a step of one decode took 14 ms, of 16 22 ms; a prefill token 0.57 ms.
MEASURED: Final = StepCosts(step_us=14_000 - 8_000 / 15, decode_us=8_000 / 15, prefill_token_us=570)

# The step holds a prompt of 256 tokens beside a full batch of decodes.
INFO: Final = EngineInfo("simulated", 16, 2048, 256 + 16, 257, frozenset())

SCARCE: Final = replace(INFO, slots=64, max_step_tokens=256 + 64, kv_blocks=48)
"""More slots than the memory fills: 48 blocks of 64 tokens, a dozen sequences."""


class Memory:
    """The torch engine's own bookkeeping of blocks, over tensors of no size worth mentioning.

    Runs a plan as the engine does, and raises ValueError as it does when blocks run out.
    """

    def __init__(self, info: EngineInfo) -> None:
        block_bytes = 2 * info.block_tokens * 4
        self._blocks = KvMemory(
            KvShape(1, 1, 1),
            blocks=info.kv_blocks,
            dtype=torch.float32,
            device=torch.device("cpu"),
            prefix_cache_bytes=info.kv_blocks * block_bytes,
        )

    def cached_tokens(self, tenant: str, token_ids: tuple[int, ...], adapter: str | None) -> int:
        return self._blocks.cached_tokens(tenant, token_ids)

    def run(self, plan: StepPlan) -> None:
        claims = [self._blocks.claim(admitted.tenant, admitted.cached_token_ids) for admitted in plan.admitted]
        for slot in plan.released:
            self._blocks.release(slot)
        for admitted, claim in zip(plan.admitted, claims, strict=True):
            assert claim is not None, "the plan counts on what is not cached"
            self._blocks.begin(admitted.slot, claim)
        lengths = {chunk.slot: chunk.start + len(chunk.token_ids) for chunk in plan.prefills}
        self._blocks.make_room(lengths | {decode.slot: decode.position + 1 for decode in plan.decodes})
        for chunk in plan.prefills:
            self._blocks.written(chunk.slot, chunk.token_ids)
        for decode in plan.decodes:
            self._blocks.written(decode.slot, (decode.token_id,))
