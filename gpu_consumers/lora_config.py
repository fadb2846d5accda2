"""adapter_config.json of PEFT: what an adapter is multiplied with, and whether we compute all that it says.

Read by the torch engine when an adapter is wanted, and by the command line when one is registered: without torch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from typing import Any, Final, TypeVar

from gpu_consumers.errors import AdapterUnavailableError

_Number = TypeVar("_Number", int, float)

_REFUSED: Final[dict[str, str]] = {
    "use_dora": "is a DoRA adapter",
    "lora_bias": "has biases",
    "modules_to_save": "replaces whole modules",
    "trainable_token_indices": "changes token embeddings",
    "target_parameters": "changes parameters that are no linear module",
    "layer_replication": "repeats layers",
    "alora_invocation_tokens": "is active behind certain tokens only (aLoRA)",
    "arrow_config": "chooses among adapters token by token (Arrow)",
    "use_qalora": "is a QA-LoRA adapter",
    "use_bdlora": "is a block-diagonal adapter",
    "kasa_config": "is a KaSA adapter",
    "monteclora_config": "is a MonteCLoRA adapter",
    "velora_config": "is a VeLoRA adapter",
}
"""Options that change the arithmetic. None of them is set in a plain LoRA adapter."""

_KEEPS_THE_MODEL: Final = (None, True, False, "gaussian", "eva", "orthogonal")
"""Values of init_lora_weights that leave the model's own weights as they are; PiSSA, OLoRA, ... take a part out."""


@dataclass(frozen=True, slots=True)
class LoraConfig:
    """Of one adapter. Patterns have the rank or alpha of modules whose path ends as the pattern says."""

    rank: int
    alpha: float
    rank_patterns: Mapping[str, int] = field(default_factory=dict)
    alpha_patterns: Mapping[str, float] = field(default_factory=dict)
    scales_by_root: bool = False

    def rank_of(self, module: str) -> int:
        """module: its whole path, such as model.layers.0.self_attn.q_proj."""
        return _matching(self.rank_patterns, module, self.rank)

    def scale_of(self, module: str) -> float:
        """What x A B is multiplied with: alpha over the rank, or over its root (rsLoRA, Kalajdzievski, 2023)."""
        rank = self.rank_of(module)
        return _matching(self.alpha_patterns, module, self.alpha) / (sqrt(rank) if self.scales_by_root else rank)


def read_config(directory: Path) -> LoraConfig:
    """Raises AdapterUnavailableError: not there, not LoRA, or with options that are not plain LoRA.

    Messages name no directory: clients read them.
    """
    file = directory / "adapter_config.json"
    try:
        declared = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise AdapterUnavailableError(f"{file.name} can't be read: {error.strerror}") from error
    except ValueError as error:
        raise AdapterUnavailableError(f"{file.name} is no JSON: {error}") from error
    if not isinstance(declared, dict):
        raise AdapterUnavailableError(f"{file.name} holds no JSON object")
    if declared.get("peft_type") != "LORA":
        raise AdapterUnavailableError(f"its peft_type is {declared.get('peft_type')!r}; only LORA is supported")
    _refuse_unsupported(declared)
    return LoraConfig(
        rank=_whole(declared.get("r"), "r"),
        alpha=_positive(declared.get("lora_alpha"), "lora_alpha"),
        rank_patterns=_patterns(declared, "rank_pattern", _whole),
        alpha_patterns=_patterns(declared, "alpha_pattern", _positive),
        scales_by_root=bool(declared.get("use_rslora")),
    )


def _refuse_unsupported(declared: Mapping[str, Any]) -> None:
    for option, meaning in _REFUSED.items():
        if declared.get(option):
            raise AdapterUnavailableError(f"it {meaning} ({option}), which is not supported")
    if declared.get("bias", "none") != "none":
        raise AdapterUnavailableError(f"it has biases (bias is {declared['bias']!r}), which is not supported")
    if declared.get("init_lora_weights") not in _KEEPS_THE_MODEL:
        raise AdapterUnavailableError(
            f"it changes the model's own weights (init_lora_weights is {declared['init_lora_weights']!r}): save it as "
            "plain LoRA with path_initial_model_for_weight_conversion"
        )


def _positive(value: object, name: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf"):
        return value
    raise AdapterUnavailableError(f"{name} in adapter_config.json is {value!r}; it is a number above 0")


def _whole(value: object, name: str) -> int:
    number = _positive(value, name)
    if number != int(number):
        raise AdapterUnavailableError(f"{name} in adapter_config.json is {value!r}; it is a whole number")
    return int(number)


def _patterns(declared: Mapping[str, Any], name: str, checked: Callable[[object, str], _Number]) -> dict[str, _Number]:
    patterns = declared.get(name) or {}
    if not isinstance(patterns, dict):
        raise AdapterUnavailableError(f"{name} in adapter_config.json is no object")
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise AdapterUnavailableError(f"{name} has {pattern!r}, which is no pattern: {error}") from error
    return {pattern: checked(value, f"{name}[{pattern!r}]") for pattern, value in patterns.items()}


def _matching(patterns: Mapping[str, _Number], module: str, default: _Number) -> _Number:
    """The first pattern that matches the end of the path decides, as PEFT has it."""
    for pattern, value in patterns.items():
        if re.match(rf"(.*\.)?({pattern})$", module):
            return value
    return default
