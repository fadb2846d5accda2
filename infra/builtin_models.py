"""The models that `headrace up` serves without being told anything: the newcomer's, and the echo."""

from __future__ import annotations

from pathlib import Path

from infra.errors import SettingInvalid
from schemas.events import ModelRegistered
from schemas.names import deployment_for

SMOLLM2 = "smollm2"
ECHO = "echo"
BUILTIN = (SMOLLM2, ECHO)
_VERSION = "v1"


def builtin_names(setting: str) -> tuple[str, ...]:
    """The names in HEADRACE_MODEL, for `headrace up`. Raises SettingInvalid."""
    names = tuple(dict.fromkeys(name.strip() for name in setting.split(",")))
    if not set(names) <= set(BUILTIN):
        allowed = f"`headrace up` serves {' and '.join(BUILTIN)}; others are for `headrace worker`"
        raise SettingInvalid("HEADRACE_MODEL", setting, allowed)
    return names


def builtin_model(name: str, smollm2: Path | None, now_us: int) -> ModelRegistered:
    """The record of a built-in model; `smollm2` is where its files are."""
    version = f"{name}@{_VERSION}"
    if name == ECHO:
        engine, location, context_tokens = "echo", "echo", 8192
        tokenizer = "bytes"
    else:
        assert smollm2 is not None
        engine, location, context_tokens = "torch", str(smollm2), 8192
        tokenizer = location
    return ModelRegistered(
        model_version=version,
        at_us=now_us,
        deployment=deployment_for(version),
        engine=engine,
        location=location,
        tokenizer=tokenizer,
        context_tokens=context_tokens,
        default_max_output_tokens=256,
    )
