"""One forward pass of a Llama-family model over a step's tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from gpu_consumers.engines.torch.attention import attend
from gpu_consumers.engines.torch.batch import StepBatch
from gpu_consumers.engines.torch.kv_memory import KvMemory, KvShape
from gpu_consumers.engines.torch.linear import Linear
from gpu_consumers.engines.torch.native import Kernels
from gpu_consumers.engines.torch.rotary import RotaryTable, Rotation


@dataclass(frozen=True, slots=True)
class Layer:
    """Weights of one layer. qkv: query, key and value projections as one; gate_up: those of the MLP as one."""

    attention_norm: Tensor
    qkv: Linear
    attention_out: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class LlamaModel:
    """Weights, and the arithmetic over them; KV memory comes from outside.

    kernels: the compiled ones; None: torch's own operations.
    """

    embedding: Tensor
    layers: tuple[Layer, ...]
    norm: Tensor
    head: Linear
    rotary: RotaryTable
    query_heads: int
    kv_shape: KvShape
    norm_epsilon: float
    kernels: Kernels | None = None

    def forward(self, batch: StepBatch, memory: KvMemory) -> Tensor | None:
        """Logits [output rows, vocabulary], or None where no token's logits are wanted.

        Writes the step's keys and values to `memory`.
        """
        hidden = self.embedding.index_select(0, batch.token_ids)
        rotation = self.rotary.at(batch.positions, hidden.dtype)
        for number, layer in enumerate(self.layers):
            attended = self._attend(number, layer, hidden, batch, memory, rotation)
            if number == len(self.layers) - 1:
                # Only the keys of the other tokens were wanted; they are written.
                if not batch.output_slots:
                    return None
                attended, hidden = attended[batch.output_rows], hidden[batch.output_rows]
            hidden = layer.attention_out.added_to(hidden, attended)
            hidden = layer.down.added_to(hidden, self._gated(layer.gate_up(self._normed(hidden, layer.mlp_norm))))
        return self.head(self._normed(hidden, self.norm))

    def _attend(
        self, number: int, layer: Layer, hidden: Tensor, batch: StepBatch, memory: KvMemory, rotation: Rotation
    ) -> Tensor:
        key_heads, head_dim = self.kv_shape.heads, self.kv_shape.head_dim
        qkv = layer.qkv(self._normed(hidden, layer.attention_norm))
        qkv = qkv.view(-1, self.query_heads + 2 * key_heads, head_dim)
        held, kernels = memory.layers[number], self.kernels
        if kernels is not None:
            kernels.rotate_and_store(
                qkv, rotation.cos, rotation.sin, batch.places, held.keys, held.values, self.query_heads
            )
        else:
            rotation.apply(qkv[:, : self.query_heads + key_heads])
            held.rows[batch.kv_rows] = qkv[:, self.query_heads :]
        return attend(qkv, batch, held, query_heads=self.query_heads, kernels=kernels)

    def _normed(self, hidden: Tensor, weight: Tensor) -> Tensor:
        if self.kernels is not None:
            return self.kernels.rms_norm(hidden, weight, self.norm_epsilon)
        return F.rms_norm(hidden, (hidden.shape[-1],), weight, self.norm_epsilon)

    def _gated(self, gate_up: Tensor) -> Tensor:
        if self.kernels is not None:
            return self.kernels.gated_silu(gate_up)
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate).mul_(up)
