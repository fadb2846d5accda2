"""The torch engine: continuous batching of our own over Hugging Face weights, on CPU and CUDA.

Reading order: engine (one step), batch (its plan as index tensors), model (one forward pass), attention,
kv_memory and blocks (where keys and values lie), linear, norms, activations and rotary (the arithmetic); loader, and
what it leans on: checkpoint (files), families (how models differ), assembly (their weights -> our layers).
"""

from gpu_consumers.engines.torch.engine import TorchEngine
from gpu_consumers.engines.torch.loader import load_torch_engine

__all__ = ["TorchEngine", "load_torch_engine"]
