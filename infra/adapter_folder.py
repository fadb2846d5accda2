"""Can the adapter in this folder be served? Looked at when one is registered, so that no request finds out."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from gpu_consumers.errors import AdapterUnavailableError
from gpu_consumers.lora_config import read_config
from infra.errors import AdapterFolderInvalid

CONFIG: Final = "adapter_config.json"
WEIGHTS: Final = "adapter_model.safetensors"


def check_adapter_folder(folder: Path) -> None:
    """Raises AdapterFolderInvalid for a folder that is not one of PEFT's with a plain LoRA adapter in safetensors: what
    an engine would refuse by its configuration alone is refused here in the engine's words. The weights, and whether
    they fit the model, are not looked at."""
    if not folder.is_dir():
        raise AdapterFolderInvalid(folder, "there is no such folder")
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise AdapterFolderInvalid(folder, f"it has no {name}")
    try:
        read_config(folder)
    except AdapterUnavailableError as error:
        raise AdapterFolderInvalid(folder, str(error)) from None
