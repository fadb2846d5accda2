"""vLLM behind the engine port: `pip install headrace[vllm]`.

Reading order: engine (one step), streams (requests that run on inside vLLM, between steps), parameters (our sampling
parameters in vLLM's words), api (what we use of vLLM), loader.
"""

from gpu_consumers.engines.vllm.engine import VllmEngine
from gpu_consumers.engines.vllm.loader import open_vllm_engine

__all__ = ["VllmEngine", "open_vllm_engine"]
