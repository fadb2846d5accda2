"""Can this folder's model be served? Looked at when one is registered, so that no worker finds out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from infra.errors import ModelFolderInvalid
from models.architectures import ARCHITECTURES

CONFIG: Final = "config.json"
_POSITIONS: Final = ("max_position_embeddings", "n_positions")
_LONG_ROPE: Final = ("longrope", "su")
_MOST_TOKENS: Final = 8192


def context_tokens_of(folder: Path, wanted: int | None, engine: str) -> int:
    """The context to register: what is wanted, or as many tokens as the model was made for, at most 8192.

    Raises ModelFolderInvalid for a folder that holds no model, an architecture that the torch engine does not run, or
    a model that was made for less than is wanted.
    """
    config = _config(folder)
    architecture = (config.get("architectures") or [None])[0]
    if engine == "torch" and architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise ModelFolderInvalid(folder, f"it holds a {architecture}, and the torch engine runs {known}")
    longest = _longest(config, engine)
    if wanted is not None and longest is not None and wanted > longest:
        raise ModelFolderInvalid(folder, f"its model was made for {longest} tokens, and {wanted} are wanted")
    return wanted or min(longest or _MOST_TOKENS, _MOST_TOKENS)


def unseen_context_tokens(wanted: int | None) -> int:
    """The same for a model whose folder is not here."""
    return wanted or _MOST_TOKENS


def _longest(config: dict[str, Any], engine: str) -> int | None:
    limits = [config.get(name) for name in _POSITIONS]
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if engine == "torch" and (rope.get("rope_type") or rope.get("type")) in _LONG_ROPE:
        # The angles of such a model depend on a sequence's length beyond these; the torch engine ends there.
        limits += [table.get("original_max_position_embeddings") for table in (rope, config)]
    return min((limit for limit in limits if isinstance(limit, int)), default=None)


def _config(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise ModelFolderInvalid(folder, "there is no such folder")
    try:
        config = json.loads((folder / CONFIG).read_bytes())
    except FileNotFoundError:
        raise ModelFolderInvalid(folder, f"it has no {CONFIG}") from None
    except (OSError, ValueError) as error:
        raise ModelFolderInvalid(folder, f"its {CONFIG} can't be read ({error})") from None
    if not isinstance(config, dict):
        raise ModelFolderInvalid(folder, f"its {CONFIG} is no object")
    return config
