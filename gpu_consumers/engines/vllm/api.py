"""What we use of vLLM, in one place. Written against its V1 engine, release 0.32.

The signatures that matter:

    AsyncLLM.from_engine_args(AsyncEngineArgs(model=..., ...))           blocks until the model is loaded
    AsyncLLM.generate(prompt, sampling_params, request_id, *, lora_request=None) -> AsyncGenerator[RequestOutput]
    AsyncLLM.abort(request_id)                                           of a request that is not there: nothing
    AsyncLLM.shutdown()                                                  ends vLLM's processes
    RequestOutput.outputs[0].token_ids, .logprobs, .finish_reason        with DELTA: those since the last output

Parameters that vLLM refuses raise VLLMValidationError, from their constructor or from `generate`; a request that fails
later raises EngineGenerateError, and EngineDeadError means that the whole engine is gone.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Final

from gpu_consumers.errors import EngineConfigurationError

INSTALL: Final = "pip install 'headrace[vllm]'"


@dataclass(frozen=True, slots=True)
class VllmApi:
    """vLLM's own classes; a test gives others of the same behaviour. delta: RequestOutputKind.DELTA."""

    async_llm: Any
    engine_args: Any
    sampling_params: Any
    structured_outputs: Any
    lora_request: Any
    tokens_prompt: Any
    delta: Any
    engine_dead: type[Exception]


def import_vllm() -> VllmApi:
    """Takes seconds. Raises EngineConfigurationError where vLLM is not installed, or is one that has no V1 engine."""
    try:
        vllm = importlib.import_module("vllm")
        sampling = importlib.import_module("vllm.sampling_params")
        return VllmApi(
            async_llm=importlib.import_module("vllm.v1.engine.async_llm").AsyncLLM,
            engine_args=importlib.import_module("vllm.engine.arg_utils").AsyncEngineArgs,
            sampling_params=vllm.SamplingParams,
            structured_outputs=sampling.StructuredOutputsParams,
            lora_request=importlib.import_module("vllm.lora.request").LoRARequest,
            tokens_prompt=vllm.TokensPrompt,
            delta=sampling.RequestOutputKind.DELTA,
            engine_dead=importlib.import_module("vllm.v1.engine.exceptions").EngineDeadError,
        )
    except ModuleNotFoundError as error:
        if error.name == "vllm":
            raise EngineConfigurationError(
                f"the model is registered with the engine vllm, which is not installed here: {INSTALL}"
            ) from error
        raise EngineConfigurationError(f"vLLM is here, but not all that it needs ({error}): {INSTALL}") from error
    except (ImportError, AttributeError) as error:
        raise EngineConfigurationError(f"this vLLM is not one that Headrace knows ({error}): {INSTALL}") from error
