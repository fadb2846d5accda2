"""What may be registered, decided without a broker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eventlog.admin import registered_later, why_not_an_adapter
from eventlog.registry import Registry
from schemas.events import AdapterRegistered, ModelRegistered, TenantRegistered

MODEL = ModelRegistered(
    model_version="chat@v3", at_us=1, deployment="chat-v3", engine="echo", location="bytes", tokenizer="bytes",
    context_tokens=512, default_max_output_tokens=64,
)  # fmt: skip
TENANT = TenantRegistered(
    tenant="acme", at_us=1, requests_per_minute=60, tokens_per_minute=1000, max_concurrent_requests=4
)
ADAPTER = AdapterRegistered(adapter="tone@v1", at_us=2, model_version="chat@v3", location="/adapters/tone-v1")
REGISTRY = Registry().apply(MODEL).apply(replace(MODEL, model_version="chat@v4")).apply(TENANT)


@pytest.mark.parametrize("adapter", [ADAPTER, replace(ADAPTER, tenant="acme")])
def test_an_adapter_of_a_registered_model_may_be_registered_and_again(adapter: AdapterRegistered) -> None:
    assert why_not_an_adapter(adapter, REGISTRY) is None
    assert why_not_an_adapter(replace(adapter, location="/elsewhere"), REGISTRY.apply(adapter)) is None


@pytest.mark.parametrize(
    ("adapter", "reason"),
    [
        (replace(ADAPTER, model_version="chat@v9"), "no model version 'chat@v9'; there are: chat@v3, chat@v4"),
        (replace(ADAPTER, adapter="chat@v4"), "a model version goes by this name"),
        (replace(ADAPTER, tenant="nobody"), "there is no tenant 'nobody'"),
        (replace(ADAPTER, model_version="chat@v4"), "it is one of chat@v3"),
    ],
)
def test_an_adapter_that_names_what_is_not_there_may_not(adapter: AdapterRegistered, reason: str) -> None:
    registry = REGISTRY.apply(ADAPTER)
    assert reason in (why_not_an_adapter(adapter, registry) or "")


@pytest.mark.parametrize(("at_us", "registered_at_us"), [(1, 3), (2, 3), (9, 9)])
def test_a_registration_anew_is_later_even_if_a_clock_went_back(at_us: int, registered_at_us: int) -> None:
    anew = replace(ADAPTER, at_us=at_us, location="/elsewhere")
    assert registered_later(anew, REGISTRY.apply(ADAPTER)) == replace(anew, at_us=registered_at_us)
    assert registered_later(anew, REGISTRY) == anew
