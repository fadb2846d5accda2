"""One forward pass of a causal model over a step's tokens, whatever its family: what differs is data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from gpu_consumers.engines.torch.activations import Activation
from gpu_consumers.engines.torch.attention import attend
from gpu_consumers.engines.torch.attention_rule import FULL_ATTENTION, AttentionRule
from gpu_consumers.engines.torch.batch import StepBatch
from gpu_consumers.engines.torch.embedding import Embedding
from gpu_consumers.engines.torch.kv_memory import KvMemory, KvShape
from gpu_consumers.engines.torch.native import Kernels
from gpu_consumers.engines.torch.norms import HeadNorm, Norm
from gpu_consumers.engines.torch.projections import FusedShape, Product, Projection
from gpu_consumers.engines.torch.rotary import RotaryTable, Rotation


@dataclass(frozen=True, slots=True)
class Layer:
    """Weights of one layer, and what is its own.

    post: what the output of a projection goes through before it is added to the residual.
    rotary: which of the model's tables turns its heads.
    """

    projections: Mapping[Projection, Product]
    attention_norm: Norm
    mlp_norm: Norm
    head_norm: HeadNorm | None = None
    post: Mapping[Projection, Callable[[Tensor], Tensor]] = field(default_factory=dict)
    rotary: int = 0
    rule: AttentionRule = FULL_ATTENTION


@dataclass(frozen=True, slots=True)
class CausalModel:
    """Weights, and the arithmetic over them; KV memory comes from outside.

    query_heads, kv_shape.heads: those that are computed here (all of them, unless layers are split over devices).
    head: gives no logits on a rank that samples nothing.
    activation: between the two products of the MLP.
    finish: what becomes of the head's products; None: they are the logits.
    shapes: what each projection of the whole model is fused of, the same in every layer.
    layers_path: the module of the checkpoint that holds the layers, such as "model.layers".
    kernels: the compiled ones for attention; None: torch's own operations.
    """

    embedding: Embedding
    layers: tuple[Layer, ...]
    norm: Norm
    head: Callable[[Tensor], Tensor | None]
    rotaries: tuple[RotaryTable, ...]
    activation: Activation
    query_heads: int
    kv_shape: KvShape
    shapes: Mapping[Projection, FusedShape]
    layers_path: str
    finish: Callable[[Tensor], Tensor] | None = None
    kernels: Kernels | None = None

    @property
    def rules(self) -> frozenset[AttentionRule]:
        return frozenset(layer.rule for layer in self.layers)

    def forward(self, batch: StepBatch, memory: KvMemory) -> Tensor | None:
        """Logits [output rows, vocabulary], or None where no token's logits are wanted, or not those of this rank.

        Writes the step's keys and values to `memory`.
        """
        hidden = self.embedding(batch.token_ids, batch.positions)
        rotations = [table.at(batch.positions, hidden.dtype) for table in self.rotaries]
        for number, layer in enumerate(self.layers):
            attended = self._attended(number, hidden, batch, memory, rotations[layer.rotary])
            if number == len(self.layers) - 1:
                # Only the keys of the other tokens were wanted; they are written.
                if not batch.output_slots:
                    return None
                attended, hidden, batch = attended[batch.output_rows], hidden[batch.output_rows], batch.of_outputs()
            hidden = self._added(hidden, number, Projection.ATTENTION_OUT, attended, batch)
            inner = self._projected(number, Projection.GATE_UP, layer.mlp_norm(hidden), batch)
            hidden = self._added(hidden, number, Projection.DOWN, self.activation(inner), batch)
        logits = self.head(self.norm(hidden))
        return logits if logits is None or self.finish is None else self.finish(logits)

    def _projected(self, number: int, kind: Projection, x: Tensor, batch: StepBatch) -> Tensor:
        """A projection of layer `number` of x, whose rows are the tokens of `batch`."""
        projected = self.layers[number].projections[kind](x)
        return projected if batch.lora is None else batch.lora.add_to(projected, number, kind, x)

    def _added(self, residual: Tensor, number: int, kind: Projection, x: Tensor, batch: StepBatch) -> Tensor:
        """The same, added to `residual`."""
        post = self.layers[number].post.get(kind)
        if post is not None:
            return residual + post(self._projected(number, kind, x, batch))
        added = self.layers[number].projections[kind].added_to(residual, x)
        return added if batch.lora is None else batch.lora.add_to(added, number, kind, x)

    def _attended(self, number: int, hidden: Tensor, batch: StepBatch, memory: KvMemory, rotation: Rotation) -> Tensor:
        layer, held = self.layers[number], memory.layers[number]
        key_heads, head_dim = self.kv_shape.heads, self.kv_shape.head_dim
        qkv = self._projected(number, Projection.QKV, layer.attention_norm(hidden), batch)
        qkv = qkv.view(-1, self.query_heads + 2 * key_heads, head_dim)
        if layer.head_norm is not None:
            layer.head_norm(qkv)
        if self.kernels is not None:
            self.kernels.rotate_and_store(
                qkv, rotation.cos, rotation.sin, batch.places, held.keys, held.values, self.query_heads
            )
        else:
            rotation.apply(qkv[:, : self.query_heads + key_heads])
            held.rows[batch.kv_rows] = qkv[:, self.query_heads :]
        return attend(qkv, batch, held, query_heads=self.query_heads, rule=layer.rule, kernels=self.kernels)
