"""A LoRA adapter in PEFT's layout, read into the layout of our projections."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from gpu_consumers.engines.torch.lora_layout import LoraLayout, padded_rank
from gpu_consumers.engines.torch.projections import Projection
from gpu_consumers.errors import AdapterUnavailableError
from gpu_consumers.lora_config import LoraConfig, read_config

_PREFIX: Final = "base_model.model."  # what PEFT puts around a model
_NAME: Final = re.compile(r"(?P<module>.+)\.lora_(?P<matrix>[AB])\.weight")


@dataclass(frozen=True, slots=True, eq=False)
class LoraAdapter:
    """weights: one row, as `LoraLayout` has it or as the kernels read it, with the scale in B.

    rank: the padded one, of every module.
    kinds: the projections that it changes, in whatever layer.
    """

    weights: Tensor
    rank: int
    kinds: frozenset[Projection]


def read_lora(
    directory: Path, layout: LoraLayout, *, layers_path: str, dtype: torch.dtype, max_rank: int
) -> LoraAdapter:
    """The adapter in `directory`, in CPU memory.

    layers_path: the module of the checkpoint that holds the layers, such as "model.layers".
    max_rank: adapters of a higher one are refused.

    Raises AdapterUnavailableError with what is wrong with it.
    """
    config = read_config(directory)
    with _opened(directory / "adapter_model.safetensors") as file:
        modules = _modules(file.keys())
        rank = max((config.rank_of(module) for module in modules), default=config.rank)
        if rank > max_rank:
            raise AdapterUnavailableError(
                f"its rank is {rank}, and places are made for {max_rank} (HEADRACE_ADAPTER_MAX_RANK)"
            )
        reading = _Reading(file, config, layout, layers_path, padded_rank(rank), dtype)
        for module, names in modules.items():
            reading.take(module, names)
        return reading.adapter()


class _Reading:
    """What the modules of one file have in common."""

    def __init__(
        self, file: Any, config: LoraConfig, layout: LoraLayout, layers_path: str, rank: int, dtype: torch.dtype
    ) -> None:
        self._file, self._config, self._layout, self._rank = file, config, layout, rank
        self._module_in_layer = re.compile(rf"{re.escape(layers_path)}\.(\d+)\.(.+)")
        self._spans = {
            span.module: (kind, number, span)
            for kind, shape in layout.shapes.items()
            for number, span in enumerate(shape.spans)
        }
        self._weights = torch.zeros(layout.numbers(rank), dtype=dtype)
        self._kinds: set[Projection] = set()

    def take(self, module: str, names: dict[str, str]) -> None:
        """names: of its tensors in the file, by matrix."""
        found = self._module_in_layer.fullmatch(module)
        place = None if found is None else self._spans.get(found[2])
        if found is None or place is None or int(found[1]) >= self._layout.layers:
            raise AdapterUnavailableError(
                f"it changes {module}, which is not one of the linear modules of this model's {self._layout.layers} "
                f"layers: {', '.join(self._spans)}"
            )
        layer, (kind, number, span) = int(found[1]), place
        rank = self._config.rank_of(module)
        a = self._matrix(module, names, "A", (rank, self._layout.shapes[kind].inputs))
        b = self._matrix(module, names, "B", (span.outputs, rank))
        first = number * self._rank
        self._layout.a(self._weights, self._rank, layer, kind)[:, first : first + rank] = a.t()
        scaled = b.float() * self._config.scale_of(module)
        if span.order is not None:
            scaled = scaled[torch.tensor(span.order)]
        self._layout.b(self._weights, self._rank, layer, kind, number)[:rank] = scaled.t()
        self._kinds.add(kind)

    def adapter(self) -> LoraAdapter:
        if not self._kinds:
            raise AdapterUnavailableError("there are no LoRA weights in adapter_model.safetensors")
        if not bool(torch.isfinite(self._weights).all()):
            raise AdapterUnavailableError("some of its weights are not numbers (NaN or infinity)")
        return LoraAdapter(self._weights, self._rank, frozenset(self._kinds))

    def _matrix(self, module: str, names: dict[str, str], matrix: str, shape: tuple[int, int]) -> Tensor:
        if matrix not in names:
            raise AdapterUnavailableError(f"lora_{matrix} of {module} is missing in adapter_model.safetensors")
        tensor: Tensor = self._file.get_tensor(names[matrix])
        if tuple(tensor.shape) != shape:
            raise AdapterUnavailableError(
                f"lora_{matrix} of {module} is {list(tensor.shape)}, and this model takes {list(shape)}: it was made "
                "for another model, or with another rank than its configuration says"
            )
        return tensor


def _modules(names: list[str]) -> dict[str, dict[str, str]]:
    """Names of tensors by module and matrix, the scale of nothing else among them."""
    modules: dict[str, dict[str, str]] = defaultdict(dict)
    for name in names:
        found = _NAME.fullmatch(name.removeprefix(_PREFIX))
        if found is None:
            raise AdapterUnavailableError(f"adapter_model.safetensors has {name!r}, which is no matrix of plain LoRA")
        modules[found["module"]][found["matrix"]] = name
    return modules


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    if not file.is_file():
        raise AdapterUnavailableError(f"there is no {file.name}")
    try:
        with safe_open(file, framework="pt") as opened:
            yield opened
    except OSError as error:
        raise AdapterUnavailableError(f"{file.name} can't be read: {error.strerror}") from error
    except (SafetensorError, RuntimeError, ValueError) as error:
        raise AdapterUnavailableError(f"{file.name} can't be read: {error}") from error
