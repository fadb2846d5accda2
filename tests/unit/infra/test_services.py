from __future__ import annotations

import pytest

from eventlog.profile import BrokerProfile
from eventlog.registry import Registry
from infra.errors import ModelUnknown, SettingInvalid
from infra.services import deployment_of, worker_settings
from infra.settings import Settings
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


def test_a_worker_is_told_what_the_settings_say() -> None:
    told = worker_settings(Settings(slots=4, max_step_tokens=64, threads=2), BrokerProfile("127.0.0.1:1"), "big-ones")
    assert (told.deployment, told.slots, told.max_step_tokens, told.threads) == ("big-ones", 4, 64, 2)


def test_a_step_too_small_to_decode_every_slot_is_refused() -> None:
    with pytest.raises(SettingInvalid, match=r"HEADRACE_MAX_STEP_TOKENS='15' .* at least HEADRACE_SLOTS, which is 16"):
        worker_settings(Settings(max_step_tokens=15), BrokerProfile("127.0.0.1:1"), "big-ones")
