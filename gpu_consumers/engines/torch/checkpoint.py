"""A model directory in Hugging Face's layout, read by transformers. Never asks a hub: what is not there is an error."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.utils import logging as transformers_logging

from gpu_consumers.errors import ModelFilesMissingError


def read_config(path: Path) -> PretrainedConfig:
    """Raises ModelFilesMissingError."""
    file = path / "config.json"
    if not file.is_file():
        raise ModelFilesMissingError(
            f"no config.json in {str(path)!r}; give the directory of a model in Hugging Face's layout"
        )
    try:
        declared = json.loads(file.read_text(encoding="utf-8"))
        if "model_type" not in declared:
            raise ValueError("no model_type in it")
        return AutoConfig.from_pretrained(path, local_files_only=True)  # type: ignore[no-any-return]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelFilesMissingError(f"cannot read {str(file)!r}: {error}") from error


def read_weights(path: Path, dtype: torch.dtype) -> PreTrainedModel:
    """On the CPU. Raises ModelFilesMissingError."""
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # its bar is over before it is read
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            path, dtype=dtype, local_files_only=True, output_loading_info=True
        )
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        raise ModelFilesMissingError(f"cannot read the weights in {str(path)!r}: {error}") from error
    model, report = loaded
    missing = sorted(report["missing_keys"])
    if missing:  # transformers would draw them at random, and say so in a log
        raise ModelFilesMissingError(
            f"{len(missing)} weights are not in {str(path)!r}: {', '.join(missing[:3])}, ...; fetch the model again"
        )
    return model  # type: ignore[no-any-return]


def import_architecture(path: Path) -> None:
    """Import what transformers has for the model, which takes seconds, and read none of its weights.

    Raises ModelFilesMissingError. An architecture that transformers does not know is left to who reads the weights.
    """
    config = read_config(path)
    with torch.device("meta"), contextlib.suppress(ValueError, KeyError):
        AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]


def eos_token_ids(*sources: int | list[int] | None) -> frozenset[int]:
    """All the ids that end an answer, of sources that give none, one or several."""
    ids: set[int] = set()
    for source in sources:
        if source is not None:
            ids.update([source] if isinstance(source, int) else source)
    return frozenset(ids)
