"""How many blocks of KV memory an engine gets: fixed at the start, by a budget that is given or measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch

from gpu_consumers.engine import EngineInfo
from gpu_consumers.engines.torch.engine import TorchEngine
from gpu_consumers.engines.torch.kv_memory import KvLayout, KvShape
from gpu_consumers.errors import EngineConfigurationError
from gpu_consumers.host_memory import available_bytes
from gpu_consumers.plan import Admission, PrefillChunk, SamplingParams, StepPlan

HOST_SHARE: Final = 0.5
"""Of the memory that is available to this process. The other half is for what steps need, and for other processes."""

CUDA_MARGIN: Final = 0.05
"""Of the device's memory: for CUDA graphs, what fragments, and steps that need a little more than the largest."""

_MIB: Final = 1 << 20


def kv_blocks(info: EngineInfo, shape: KvShape, layout: KvLayout, dtype: torch.dtype, budget_bytes: int) -> int:
    """As many as the budget holds, and no more than all slots of whole contexts can use.

    Raises EngineConfigurationError if that is too little for one sequence of `max_context_tokens`: what is admitted
    by the length of the context must be servable.
    """
    per_sequence = layout.blocks_for(info.max_context_tokens)
    block_bytes = layout.block_bytes(shape, dtype)
    blocks = min(budget_bytes // block_bytes, info.slots * per_sequence)
    if blocks < per_sequence:
        needed_mib = -(-per_sequence * block_bytes // _MIB)
        raise EngineConfigurationError(
            f"one sequence of {info.max_context_tokens} tokens needs {needed_mib} MiB of KV memory, and there are "
            f"{budget_bytes // _MIB} MiB: give it more (HEADRACE_KV_CACHE_MIB), or register the model with a shorter "
            "context"
        )
    return blocks


def host_budget_bytes(workers: int = 1) -> int:
    """On a CPU, now that the weights are loaded, for each of so many processes that share the model."""
    return int(available_bytes() * HOST_SHARE) // workers


def cuda_budget_bytes(open_engine: Callable[[int], TorchEngine], info: EngineInfo, layout: KvLayout) -> int:
    """What the device has left behind weights and the largest step, less a margin.

    open_engine: makes the engine with so many blocks. One with few of them runs that step, and is closed.
    Raises EngineConfigurationError if the device has too little memory even for that.
    """
    plan = largest_step(info)
    blocks = sum(layout.blocks_for(len(chunk.token_ids)) for chunk in plan.prefills)
    too_little = EngineConfigurationError(
        f"weights and one step of {info.max_step_tokens} tokens don't fit into the device's memory: lower "
        "HEADRACE_MAX_STEP_TOKENS or HEADRACE_SLOTS, or serve a smaller model"
    )
    try:
        trial = open_engine(blocks)
        result = trial.execute(plan)
        torch.cuda.synchronize(trial.device)
        free, total = torch.cuda.mem_get_info(trial.device)
        given_back = trial.kv_bytes
        trial.close()
        del trial
    except torch.OutOfMemoryError as error:
        raise too_little from error
    if result.deferred:
        raise too_little
    if result.failures:
        raise EngineConfigurationError(f"a trial step failed: {next(iter(result.failures.values()))}")
    torch.cuda.empty_cache()
    return free + given_back - int(CUDA_MARGIN * total)


def largest_step(info: EngineInfo) -> StepPlan:
    """Prompts that fill a step and yield a token in as many slots as it has: most rows, most logits."""
    tokens = min(info.max_context_tokens, max(1, info.max_step_tokens // info.slots))
    slots = range(info.slots)
    return StepPlan(
        admitted=tuple(Admission(slot, SamplingParams(temperature=1.0, top_p=0.9), tokens) for slot in slots),
        prefills=tuple(PrefillChunk(slot, (0,) * tokens, 0, last=True) for slot in slots),
    )
