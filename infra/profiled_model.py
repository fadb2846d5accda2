"""What `headrace profile` opens: a directory, a built-in model, or one that is registered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from eventlog.registry import Registry
from infra.builtin_models import BUILTIN, ECHO, builtin_model
from infra.errors import NothingRuns, ProfileModelUnknown
from infra.services import deployment_of
from schemas.events import ModelRegistered

_LEAST_CONTEXT_TOKENS: Final = 2048
_MODEL: Final = "profile@v1"


def profiled_model(
    name: str,
    *,
    longest_tokens: int,
    now_us: int,
    smollm2: Callable[[], Path],
    registry: Callable[[], Registry],
    engine: str = "torch",
) -> ModelRegistered:
    """The registration of what a person named: as it is, or made up for a directory or a built-in model.

    longest_tokens: of the requests to come: slots of a directory's model have room for as many. engine: of a directory.
    smollm2: where it is, fetched if need be. registry: asked for no directory and nothing built in; may raise
    NothingRuns.
    Raises ProfileModelUnknown, ModelUnknown, ModelFilesMissingError.
    """
    directory = Path(name).expanduser()
    if "/" in name or directory.is_dir():
        return _of_directory(directory.absolute(), longest_tokens, now_us, engine)
    if name in BUILTIN:
        return builtin_model(name, None if name == ECHO else smollm2(), now_us)
    try:
        known = registry()
    except NothingRuns as error:
        raise ProfileModelUnknown(name, BUILTIN) from error
    if name in known.models:
        return known.models[name]
    deployment = deployment_of(name, known)
    return max((m for m in known.models.values() if m.deployment == deployment), key=lambda m: m.at_us)


def _of_directory(directory: Path, longest_tokens: int, now_us: int, engine: str) -> ModelRegistered:
    from gpu_consumers.engines.torch.checkpoint import read_config  # only here: it takes seconds to import

    made_for: int = read_config(directory).get_text_config().max_position_embeddings
    return ModelRegistered(
        model_version=_MODEL,
        at_us=now_us,
        deployment="profile",
        engine=engine,
        location=str(directory),
        tokenizer=str(directory),
        context_tokens=min(made_for, max(_LEAST_CONTEXT_TOKENS, longest_tokens)),
        default_max_output_tokens=256,
    )
