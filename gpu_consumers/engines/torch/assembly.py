"""A model that transformers loaded -> ours: its modules found by the family's names, its weights fused and packed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

from gpu_consumers.engines.torch.activations import between_products, named
from gpu_consumers.engines.torch.attention_rule import AttentionRule
from gpu_consumers.engines.torch.embedding import Embedding
from gpu_consumers.engines.torch.families import Family, NormKind
from gpu_consumers.engines.torch.kv_memory import KvShape
from gpu_consumers.engines.torch.layer_kinds import LayerKind, RotaryKind, layer_kinds, rope_parameters
from gpu_consumers.engines.torch.linear import Linear
from gpu_consumers.engines.torch.model import CausalModel, Layer
from gpu_consumers.engines.torch.native import Kernels
from gpu_consumers.engines.torch.norms import HeadNorm, Norm, head_norm, layer_norm, offset_weight, rms_norm
from gpu_consumers.engines.torch.parallel.ranks import GatheredHead, Ranks, SummedLinear
from gpu_consumers.engines.torch.parallel.shards import SUMMED, Shard, check_divisible
from gpu_consumers.engines.torch.projections import (
    FusedShape,
    MakeProduct,
    Product,
    Projection,
    fused,
    fused_shape,
    projection,
)
from gpu_consumers.engines.torch.rotary import RotaryLayout, RotaryTable


@torch.inference_mode()
def build_model(
    loaded: PreTrainedModel,
    family: Family,
    max_context_tokens: int,
    device: torch.device,
    kernels: Kernels | None = None,
    ranks: Ranks | None = None,
    make: MakeProduct = Linear,
) -> CausalModel:
    """Fuse and pack the weights of a transformers model, which is left without its layers.

    make: of all matrix products, the head's included; embeddings and norms keep the model's dtype.
    ranks: those that share the model; None: all of it is here. Raises UnsupportedModelError if they can't share it.
    """
    return _Assembly(loaded, family, device, kernels, ranks, make).model(max_context_tokens)


class _Assembly:
    """What every step of building has in common."""

    def __init__(
        self,
        loaded: PreTrainedModel,
        family: Family,
        device: torch.device,
        kernels: Kernels | None,
        ranks: Ranks | None,
        make: MakeProduct,
    ) -> None:
        config: PretrainedConfig = loaded.config
        self._ranks, self._shard = ranks, Shard() if ranks is None else ranks.shard
        self._loaded, self._family, self._device, self._kernels = loaded, family, device, kernels
        self._config, self._make = config, make
        self._decoder: Any = loaded.get_submodule(family.decoder)
        self._query_heads: int = config.num_attention_heads
        self._key_heads: int = getattr(config, "num_key_value_heads", None) or self._query_heads
        self._head_dim: int = getattr(config, "head_dim", None) or config.hidden_size // self._query_heads
        turning = rope_parameters(config).get("partial_rotary_factor", 1.0)
        self._layout = RotaryLayout(self._head_dim, int(self._head_dim * turning))

    def model(self, max_context_tokens: int) -> CausalModel:
        family, config = self._family, self._config
        layers: Any = self._decoder.get_submodule(family.layers)
        kinds = layer_kinds(config, rotary=family.rotary is not None)
        tables = list(dict.fromkeys(kind.rotary for kind in kinds))
        shapes = self._shapes(layers[0])
        check_divisible(
            self._shard.size,
            attention_heads=self._query_heads,
            key_value_heads=self._key_heads,
            columns_of_the_MLP=shapes[Projection.DOWN].inputs,
        )
        built = []
        for kind in kinds:  # taken out one by one, so that no more than one layer is in memory twice
            built.append(self._layer(layers.pop(0), shapes, kind, tables.index(kind.rotary)))
        return CausalModel(
            embedding=self._embedding(),
            layers=tuple(built),
            norm=self._norm(self._decoder.get_submodule(family.final_norm)),
            head=self._head(),
            rotaries=tuple(self._rotary(kind, max_context_tokens) for kind in tables),
            activation=between_products(
                named(getattr(config, family.activation)), gated=family.gated, kernels=self._kernels
            ),
            query_heads=self._shard.of(self._query_heads),
            kv_shape=KvShape(len(built), self._shard.of(self._key_heads), self._head_dim),
            shapes=shapes,
            layers_path=f"{family.decoder}.{family.layers}",
            finish=self._finish(),
            kernels=self._kernels,
        )

    def _layer(self, layer: Any, shapes: Mapping[Projection, FusedShape], kind: LayerKind, rotary: int) -> Layer:
        family = self._family
        post = {Projection.ATTENTION_OUT: family.attention_post_norm, Projection.DOWN: family.mlp_post_norm}
        softcap = None if family.attention_softcap is None else getattr(self._config, family.attention_softcap)
        return Layer(
            projections={made: self._projection(layer, made, shapes[made]) for made in Projection},
            attention_norm=self._norm(layer.get_submodule(family.attention_norm)),
            mlp_norm=self._norm(layer.get_submodule(family.mlp_norm)),
            head_norm=self._head_norm(layer),
            post={after: self._norm(layer.get_submodule(name)) for after, name in post.items() if name is not None},
            rotary=rotary,
            rule=AttentionRule(kind.window, softcap),
        )

    def _modules(self, kind: Projection) -> Sequence[str]:
        family = self._family
        return {
            Projection.QKV: family.qkv,
            Projection.ATTENTION_OUT: (family.attention_out,),
            Projection.GATE_UP: family.gate_up,
            Projection.DOWN: (family.down,),
        }[kind]

    def _projection(self, layer: Any, kind: Projection, shape: FusedShape) -> Product:
        sources = [self._source(layer.get_submodule(name)) for name in self._modules(kind)]
        weight, bias = fused(sources, shape.row_order)
        if self._ranks is None:
            return projection([(weight, bias)], self._device, self._make)
        part = projection([self._shard.cut(kind, shape, weight, bias)], self._device, self._make)
        return SummedLinear(part, self._ranks) if kind in SUMMED else part

    def _source(self, module: Any) -> tuple[Tensor, Tensor | None]:
        """Weight [out, in] and bias [out]."""
        weight = module.weight.detach()
        bias = None if module.bias is None else module.bias.detach()
        return weight.t() if self._family.transposed else weight, bias

    def _head(self) -> Callable[[Tensor], Tensor | None]:
        head: Any = self._loaded.get_submodule("lm_head")
        weight: Tensor = head.weight.detach()
        bias = None if head.bias is None else head.bias.detach()
        if self._ranks is None:
            return projection([(weight, bias)], self._device, self._make)
        rows = self._shard.span(len(weight))
        part = projection([(weight[rows], None if bias is None else bias[rows])], self._device, self._make)
        return GatheredHead(part, self._ranks, len(weight))

    def _row_order(self, kind: Projection) -> tuple[int, ...] | None:
        if kind is not Projection.QKV or self._layout.whole:
            return None
        own, dim = self._layout.order(), self._head_dim
        turned = [head * dim + d for head in range(self._query_heads + self._key_heads) for d in own]
        return (*turned, *range(len(turned), len(turned) + self._key_heads * dim))

    def _shapes(self, layer: Any) -> dict[Projection, FusedShape]:
        hidden = self._config.hidden_size
        queries, keys = self._query_heads * self._head_dim, self._key_heads * self._head_dim
        inner = layer.get_submodule(self._family.down).weight.numel() // hidden
        rows = {
            Projection.QKV: (hidden, [("query", queries), ("key", keys), ("value", keys)]),
            Projection.ATTENTION_OUT: (queries, [("out", hidden)]),
            Projection.GATE_UP: (hidden, [("gate", inner), ("up", inner)] if self._family.gated else [("up", inner)]),
            Projection.DOWN: (inner, [("down", hidden)]),
        }
        return {kind: fused_shape(*rows[kind], self._modules(kind), self._row_order(kind)) for kind in Projection}

    def _norm(self, module: Any) -> Norm:
        epsilon = getattr(self._config, self._family.norm_epsilon)
        weight = module.weight.detach().to(self._device)
        match self._family.norm:
            case NormKind.LAYER:
                return layer_norm(weight, module.bias.detach().to(self._device), epsilon)
            case NormKind.RMS:
                return rms_norm(weight, epsilon, self._kernels)
            case NormKind.RMS_OFFSET:
                return rms_norm(offset_weight(weight), epsilon, self._kernels)

    def _head_norm(self, layer: Any) -> HeadNorm | None:
        family = self._family
        if family.query_norm is None or family.key_norm is None:
            return None
        query_heads, key_heads = self._shard.of(self._query_heads), self._shard.of(self._key_heads)
        heads = ((family.query_norm, query_heads), (family.key_norm, key_heads))
        weights = [layer.get_submodule(name).weight.detach().expand(count, -1) for name, count in heads]
        weight = torch.cat(weights)[:, self._layout.order()].to(self._device)
        if family.norm is NormKind.RMS_OFFSET:
            weight = offset_weight(weight)
        return head_norm(weight, getattr(self._config, family.norm_epsilon), self._kernels)

    def _embedding(self) -> Embedding:
        family, decoder = self._family, self._decoder
        tokens: Tensor = decoder.get_submodule(family.embedding).weight.detach().to(self._device)
        positions = None
        if family.positions is not None:
            positions = decoder.get_submodule(family.positions).weight.detach().to(self._device)
        scale = 1.0 if family.embedding_scale is None else family.embedding_scale(self._config)
        # Rounded to the model's dtype, as transformers does: the model was trained with it.
        return Embedding(tokens, positions, torch.tensor(scale, dtype=tokens.dtype).item())

    def _rotary(self, kind: RotaryKind, max_context_tokens: int) -> RotaryTable:
        scale = self._family.query_scale
        if not kind.turns or self._family.rotary is None:
            cos = torch.ones(max_context_tokens, self._head_dim)
            sin = torch.zeros_like(cos)
        else:
            positions = torch.arange(max_context_tokens).unsqueeze(0)
            embedding: Any = self._decoder.get_submodule(self._family.rotary)
            of_type = {} if kind.layer_type is None else {"layer_type": kind.layer_type}
            cos, sin = (table[0] for table in embedding(torch.zeros(1, dtype=torch.float32), positions, **of_type))
            cos, sin = self._layout.factors(cos, sin)
        return RotaryTable(
            cos.to(self._device),
            sin.to(self._device),
            query_heads=self._shard.of(self._query_heads),
            key_heads=self._shard.of(self._key_heads),
            query_scale=None if scale is None else scale(self._config),
        )

    def _finish(self) -> Callable[[Tensor], Tensor] | None:
        name = self._family.logit_softcap
        cap = None if name is None else getattr(self._config, name)
        return None if cap is None else lambda logits: logits.div_(cap).tanh_().mul_(cap)
