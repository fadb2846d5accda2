"""Kernels in C++ for what a CPU step does between its matrix products; torch's own operations do the same without them.

`build` compiles them once for this machine, `kernels` binds what it made.
"""

from gpu_consumers.engines.torch.native.kernels import Kernels, kernels_for

__all__ = ["Kernels", "kernels_for"]
