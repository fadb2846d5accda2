"""LoRA adapters as PEFT writes them, with random weights: A and B both, so that each changes every answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM


def make_adapter(
    model: Path, directory: Path, *, seed: int = 0, rank: int = 8, targets: Sequence[str] | str = "all-linear",
    **options: Any,
) -> Path:  # fmt: skip
    """Write an adapter for the model in directory `model`, and return `directory`.

    targets: modules that it changes. options: more of what `LoraConfig` takes. Equal arguments give equal weights.
    """
    from peft import LoraConfig, get_peft_model

    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, local_files_only=True)
    config = LoraConfig(
        fan_in_fan_out=base.config.model_type == "gpt2",  # what PEFT would set, with a warning
        task_type="CAUSAL_LM", r=rank, target_modules=targets if isinstance(targets, str) else list(targets),
        init_lora_weights=False, **{"lora_alpha": 2 * rank} | options,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        adapted: Any = get_peft_model(base, config)
    adapted.save_pretrained(str(directory))
    return directory
