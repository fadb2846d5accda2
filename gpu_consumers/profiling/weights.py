"""What a model weighs, read from its files: the heads of safetensors and the configuration, never the weights."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any, Final

from gpu_consumers.errors import ModelFilesMissingError
from gpu_consumers.profiling.costs import ModelCosts

_LENGTH_BYTES: Final = 8
_LOOKED_UP: Final = ("embed_tokens.weight", "wte.weight", "wpe.weight")
"""Tables of which a step reads one row for each token: nothing beside the matrices."""
_HEADS: Final = ("lm_head.weight", "embed_tokens.weight", "wte.weight")
"""What makes logits: the head, or the embedding where the two are one."""

NUMBER_BYTES: Final = {"float32": 4, "float16": 2, "bfloat16": 2}


def model_costs(directory: Path, dtype: str, *, weight_bytes: float | None = None) -> ModelCosts:
    """Of a model in Hugging Face's layout that runs in this dtype.

    weight_bytes: of one weight in a matrix (None: as many as the dtype has).
    Raises ModelFilesMissingError.
    """
    shapes = weight_shapes(directory)
    config = _config(directory)
    matrices = {name: shape for name, shape in shapes.items() if len(shape) == 2}
    head = next((n for ending in _HEADS for n in matrices if n.endswith(ending)), None)
    body = sum(prod(shape) for name, shape in matrices.items() if name != head and not name.endswith(_LOOKED_UP))
    layers, heads = config.num_hidden_layers, config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    key_heads = getattr(config, "num_key_value_heads", None) or heads
    return ModelCosts(
        body_weights=body,
        head_weights=0 if head is None else prod(matrices[head]),
        weight_bytes=NUMBER_BYTES[dtype] if weight_bytes is None else weight_bytes,
        kv_bytes_per_token=2 * layers * key_heads * head_dim * NUMBER_BYTES[dtype],
        attention_flops=4 * layers * heads * head_dim,  # one product with a key, one with a value
    )


def weight_shapes(directory: Path) -> dict[str, tuple[int, ...]]:
    """By name, of all the weights in *.safetensors. Raises ModelFilesMissingError."""
    shapes: dict[str, tuple[int, ...]] = {}
    for file in sorted(directory.glob("*.safetensors")):
        try:
            with file.open("rb") as opened:
                length = int.from_bytes(opened.read(_LENGTH_BYTES), "little")
                head: dict[str, Any] = json.loads(opened.read(length))
            shapes.update((name, tuple(told["shape"])) for name, told in head.items() if name != "__metadata__")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelFilesMissingError(f"cannot read {str(file)!r}: {error}") from error
    if not shapes:
        raise ModelFilesMissingError(f"no *.safetensors in {str(directory)!r}: what the model weighs is not known")
    return shapes


def _config(directory: Path) -> Any:
    from gpu_consumers.engines.torch.checkpoint import read_config  # only here: it takes seconds to import

    return read_config(directory).get_text_config()
