"""One forward pass of a Llama-family model over a step's tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from gpu_consumers.engines.torch.attention import attend
from gpu_consumers.engines.torch.batch import StepBatch
from gpu_consumers.engines.torch.kv_memory import KvMemory, KvShape
from gpu_consumers.engines.torch.linear import Linear
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
    """Weights, and the arithmetic over them; KV memory comes from outside."""

    embedding: Tensor
    layers: tuple[Layer, ...]
    norm: Tensor
    head: Linear
    rotary: RotaryTable
    query_heads: int
    kv_shape: KvShape
    norm_epsilon: float

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
            gate, up = layer.gate_up(self._normed(hidden, layer.mlp_norm)).chunk(2, dim=-1)
            hidden = layer.down.added_to(hidden, F.silu(gate).mul_(up))
        return self.head(self._normed(hidden, self.norm))

    def _attend(
        self, number: int, layer: Layer, hidden: Tensor, batch: StepBatch, memory: KvMemory, rotation: Rotation
    ) -> Tensor:
        key_heads, head_dim = self.kv_shape.heads, self.kv_shape.head_dim
        qkv = layer.qkv(self._normed(hidden, layer.attention_norm))
        qkv = qkv.view(-1, self.query_heads + 2 * key_heads, head_dim)
        rotation.apply(qkv[:, : self.query_heads + key_heads])
        memory.layers[number].rows[batch.kv_rows] = qkv[:, self.query_heads :]
        return attend(qkv, batch, memory.layers[number], query_heads=self.query_heads)

    def _normed(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(hidden, (hidden.shape[-1],), weight, self.norm_epsilon)
