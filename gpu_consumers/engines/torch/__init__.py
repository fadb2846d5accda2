"""The torch engine: continuous batching of our own over Hugging Face weights, on CPU and CUDA.

Reading order: engine (one step), batch (its plan as index tensors), model (one forward pass), attention,
kv_memory and blocks (where keys and values lie), linear and rotary (the arithmetic), loader.
"""

from gpu_consumers.engines.torch.engine import TorchEngine
from gpu_consumers.engines.torch.loader import load_torch_engine

__all__ = ["TorchEngine", "load_torch_engine"]
