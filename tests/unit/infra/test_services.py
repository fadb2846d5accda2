from __future__ import annotations

import pytest

from eventlog.registry import Registry
from infra.errors import ModelUnknown
from infra.services import deployment_of
from schemas.events import ModelRegistered, Route, RouteTarget

MODEL = ModelRegistered(
    model_version="chat@v2", at_us=1, deployment="big-ones", engine="echo", location="echo", tokenizer="bytes",
    context_tokens=10, default_max_output_tokens=5,
)  # fmt: skip
ROUTE = Route(alias="chat", targets=(RouteTarget(model_version="chat@v2", percent=100.0),))
REGISTRY = Registry(models={"chat@v2": MODEL}, routes={"chat": ROUTE})


@pytest.mark.parametrize("name", ["chat@v2", "chat", "big-ones"])
def test_a_worker_finds_its_deployment_by_version_alias_or_name(name: str) -> None:
    assert deployment_of(name, REGISTRY) == "big-ones"


def test_a_model_that_nobody_registered_is_refused_with_those_that_are_there() -> None:
    with pytest.raises(ModelUnknown, match=r"'chat@v3'.*chat, chat@v2"):
        deployment_of("chat@v3", REGISTRY)
