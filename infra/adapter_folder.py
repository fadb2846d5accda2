"""Does this folder hold a LoRA adapter? Looked at when one is registered, so that no request finds out."""

from __future__ import annotations

import json
from pathlib import Path

from infra.errors import AdapterFolderInvalid

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"


def check_adapter_folder(folder: Path) -> None:
    """Raises AdapterFolderInvalid for a folder that is not one of PEFT's with a LoRA adapter in safetensors."""
    if not folder.is_dir():
        raise AdapterFolderInvalid(folder, "there is no such folder")
    try:
        config = json.loads((folder / CONFIG).read_bytes())
    except FileNotFoundError:
        raise AdapterFolderInvalid(folder, f"it has no {CONFIG}") from None
    except (OSError, ValueError) as error:
        raise AdapterFolderInvalid(folder, f"its {CONFIG} can't be read ({error})") from None
    kind = config.get("peft_type") if isinstance(config, dict) else None
    if kind != "LORA":
        raise AdapterFolderInvalid(folder, f"its {CONFIG} says peft_type {kind!r}, and only 'LORA' is served")
    if not (folder / WEIGHTS).is_file():
        raise AdapterFolderInvalid(folder, f"it has no {WEIGHTS}")
