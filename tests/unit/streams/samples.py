"""Events and registry records that the tests of streams/ start from; each test names only what it is about."""

from __future__ import annotations

from typing import Any

from eventlog.registry import Registry
from schemas.events import (
    GenerationFinished,
    Message,
    ModelRegistered,
    RequestSubmitted,
    RequestValidated,
    Route,
    RouteTarget,
    TenantRegistered,
)
from schemas.ids import new_request_id

NOW_US = 1_800_000_000_000_000
SECOND_US = 1_000_000


def request_id(number: int = 0, *, partition: int = 2) -> str:
    return new_request_id(now_ms=NOW_US // 1000, partition=partition, entropy=number)


def model(version: str = "chat@v1", **changes: Any) -> ModelRegistered:
    values: dict[str, Any] = {
        "at_us": NOW_US,
        "deployment": version.replace("@", "-"),
        "engine": "echo",
        "location": "",
        "tokenizer": "bytes",
        "context_tokens": 100,
        "default_max_output_tokens": 16,
    }
    return ModelRegistered(model_version=version, **{**values, **changes})


def registry(*models: ModelRegistered, routes: dict[str, list[tuple[str, float]]] | None = None) -> Registry:
    chosen = models or (model(),)
    return Registry(
        tenants={"acme": tenant()},
        models={m.model_version: m for m in chosen},
        routes={
            alias: Route(alias=alias, targets=tuple(RouteTarget(model_version=v, percent=p) for v, p in targets))
            for alias, targets in (routes or {}).items()
        },
    )


def tenant(**changes: int) -> TenantRegistered:
    values = {"requests_per_minute": 60, "tokens_per_minute": 6000, "max_concurrent_requests": 8, **changes}
    return TenantRegistered(tenant="acme", at_us=NOW_US, **values)


def submitted(text: str = "hello", **changes: Any) -> RequestSubmitted:
    values: dict[str, Any] = {
        "request_id": request_id(),
        "tenant": "acme",
        "at_us": NOW_US - 2000,
        "received_at_us": NOW_US - 3000,
        "source": "test",
        "model": "chat@v1",
        "messages": (Message(role="user", content=text),),
    }
    return RequestSubmitted(**{**values, **changes})


def validated(number: int = 0, *, prompt: int = 10, output: int = 20, at_us: int = NOW_US, **changes: Any) -> (
    RequestValidated
):  # fmt: skip
    values: dict[str, Any] = {
        "request_id": request_id(number),
        "tenant": "acme",
        "at_us": at_us,
        "started_at_us": at_us,
        "received_at_us": at_us,
        "submitted_at_us": at_us,
        "model": "chat@v1",
        "tokenized_for": "chat@v1",
        "prompt_token_ids": (65,) * prompt,
        "max_output_tokens": output,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "seed": 7,
        "stop": (),
    }
    return RequestValidated(**{**values, **changes})


def finished(number: int = 0, *, prompt: int = 10, output: int = 5, at_us: int = NOW_US) -> GenerationFinished:
    return GenerationFinished(
        request_id=request_id(number),
        tenant="acme",
        attempt=1,
        at_us=at_us,
        worker="w",
        deployment="chat-v1",
        model_version="chat@v1",
        finish_reason="stop",
        prompt_tokens=prompt,
        output_tokens=output,
    )
