from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from eventlog.registry import Registry
from gpu_consumers.errors import ModelFilesMissingError
from infra.errors import ModelUnknown, NothingRuns, ProfileModelUnknown
from infra.profiled_model import profiled_model
from schemas.events import ModelRegistered, Route, RouteTarget
from tests.tiny_model import MAX_CONTEXT_TOKENS, make_tiny_model


def registered(version: str, at_us: int) -> ModelRegistered:
    return ModelRegistered(
        model_version=version, at_us=at_us, deployment="chat", engine="echo", location="echo", tokenizer="bytes",
        context_tokens=10, default_max_output_tokens=5,
    )  # fmt: skip


OLD, NEW = registered("chat@v1", 1), registered("chat@v2", 2)
REGISTRY = Registry(
    models={"chat@v1": OLD, "chat@v2": NEW},
    routes={"talk": Route(alias="talk", targets=(RouteTarget(model_version="chat@v2", percent=100.0),))},
)


def nobody() -> NoReturn:
    raise NothingRuns(Path("data"))


def find(
    name: str, *, registry: Registry | None = None, longest_tokens: int = 100, engine: str = "torch"
) -> ModelRegistered:
    return profiled_model(
        name, longest_tokens=longest_tokens, now_us=7, smollm2=lambda: Path("cache/smollm2"),
        registry=nobody if registry is None else lambda: registry, engine=engine,
    )  # fmt: skip


def test_a_directory_is_a_model_of_its_own_with_room_for_the_load(tmp_path: Path) -> None:
    directory = make_tiny_model(tmp_path, max_context_tokens=9000)
    model = find(str(directory), engine="vllm")
    assert (model.engine, model.location, model.tokenizer) == ("vllm", str(directory), str(directory))
    assert model.context_tokens == 2048
    assert find(str(directory), longest_tokens=5000).context_tokens == 5000


def test_a_directory_has_no_more_room_than_its_model_was_made_for(tmp_path: Path) -> None:
    assert find(str(make_tiny_model(tmp_path))).context_tokens == MAX_CONTEXT_TOKENS


def test_a_directory_that_is_not_there_is_no_other_kind_of_name() -> None:
    with pytest.raises(ModelFilesMissingError, match=r"no config\.json"):
        find("./nowhere", registry=REGISTRY)


def test_what_is_built_in_needs_no_registry() -> None:
    assert find("echo").engine == "echo"
    assert find("smollm2").location == "cache/smollm2"


@pytest.mark.parametrize(("name", "expected"), [("chat@v1", OLD), ("chat@v2", NEW), ("talk", NEW), ("chat", NEW)])
def test_a_registered_model_is_found_by_version_alias_or_deployment(name: str, expected: ModelRegistered) -> None:
    assert find(name, registry=REGISTRY) == expected


def test_a_name_that_nobody_knows_says_what_there_is() -> None:
    with pytest.raises(ModelUnknown, match="chat@v1"):
        find("smolm", registry=REGISTRY)
    with pytest.raises(ProfileModelUnknown, match=r"'smolm' is neither .* \(smollm2, echo\)"):
        find("smolm")
