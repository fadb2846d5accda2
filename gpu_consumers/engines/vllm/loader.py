"""A model directory in Hugging Face's layout -> a vllm engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpu_consumers.engine import EngineInfo
from gpu_consumers.engines.torch.checkpoint import eos_token_ids, read_config
from gpu_consumers.engines.vllm.adapters import vllm_rank
from gpu_consumers.engines.vllm.api import VllmApi, import_vllm
from gpu_consumers.engines.vllm.engine import VllmEngine
from gpu_consumers.engines.vllm.streams import LoopThread
from gpu_consumers.errors import EngineConfigurationError


def open_vllm_engine(
    path: Path | str,
    *,
    dtype: str = "bfloat16",
    slots: int = 16,
    max_context_tokens: int = 8192,
    max_step_tokens: int | None = None,
    adapter_places: int = 0,
    adapter_max_rank: int = 64,
    api: VllmApi | None = None,
) -> VllmEngine:
    """Load the model in directory `path` into vLLM, which takes the device that it finds (`CUDA_VISIBLE_DEVICES`).

    slots: vLLM's max_num_seqs. max_context_tokens: its max_model_len. max_step_tokens: what `EngineInfo` tells the
        scheduler (None: the longest prompt and one more for each slot). vLLM cuts its own steps.
    adapter_places: LoRA adapters in one batch (0: LoRA is off); adapter_max_rank: the highest rank of one.
    api: vLLM's classes (None: those that are installed).

    Raises ModelFilesMissingError, EngineConfigurationError.
    """
    vllm = import_vllm() if api is None else api
    read_config(Path(path))  # what is wrong with the files is said in the same words by every engine
    loop = LoopThread("vllm")
    try:
        arguments = vllm.engine_args(
            model=str(path),
            dtype=dtype,
            max_model_len=max_context_tokens,
            max_num_seqs=slots,
            **_lora_arguments(adapter_places, adapter_max_rank),
            # llguidance, by which the validate stage judges schemas.
            structured_outputs_config={"backend": "guidance"},
            disable_log_stats=True,
        )
        llm = loop.call(lambda: vllm.async_llm.from_engine_args(arguments))
    except Exception as error:  # vLLM has no one class for what can be wrong with a model, a device or an argument
        loop.close()
        raise EngineConfigurationError(
            f"vLLM can't open the model in {str(path)!r}: {type(error).__name__}: {error}"
        ) from error
    info = EngineInfo(
        name="vllm",
        slots=slots,
        max_context_tokens=max_context_tokens,
        max_step_tokens=max_step_tokens or max_context_tokens + slots,
        vocabulary_size=llm.model_config.get_vocab_size(),
        eos_token_ids=_eos_token_ids(llm.model_config),
        resumes_guided=False,  # its grammar begins with the request's first token, and takes no earlier ones
    )
    engine = VllmEngine(vllm, llm, loop, info, adapter_places=adapter_places)
    del llm  # the engine's alone from here on: vLLM itself keeps this frame, and the engine is to let go of it
    return engine


def _lora_arguments(places: int, max_rank: int) -> dict[str, Any]:
    if not places:
        return {"enable_lora": False}
    return {"enable_lora": True, "max_loras": places, "max_lora_rank": vllm_rank(max_rank)}


def _eos_token_ids(model_config: Any) -> frozenset[int]:
    return eos_token_ids(
        getattr(model_config.hf_text_config, "eos_token_id", None),
        model_config.try_get_generation_config().get("eos_token_id"),
    )
