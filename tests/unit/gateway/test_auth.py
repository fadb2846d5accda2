"""Who is asking."""

from __future__ import annotations

import pytest

from eventlog.registry import Registry
from gateway.auth import KEY_SUBPROTOCOL_PREFIX, SUBPROTOCOL, authenticate, bearer, websocket_key
from gateway.errors import Unauthenticated
from schemas.api_keys import KEY_RANDOM_BYTES, new_api_key
from schemas.events import ApiKeyIssued, ApiKeyRevoked, TenantRegistered

KEY = new_api_key(bytes(KEY_RANDOM_BYTES))
TENANT = TenantRegistered(tenant="acme", at_us=0, requests_per_minute=1, tokens_per_minute=1, max_concurrent_requests=1)
REGISTRY = (
    Registry().apply(TENANT).apply(ApiKeyIssued(tenant="acme", at_us=0, key_id=KEY.key_id, key_sha256=KEY.sha256))
)


def test_a_key_speaks_for_its_tenant() -> None:
    assert authenticate(REGISTRY, KEY.secret) == TENANT


@pytest.mark.parametrize("secret", [None, "", "x", KEY.secret[:-1], KEY.secret[:-1] + "1"])
def test_any_other_speaks_for_nobody_and_is_not_repeated(secret: str | None) -> None:
    with pytest.raises(Unauthenticated) as caught:
        authenticate(REGISTRY, secret)
    assert not secret or secret == "x" or secret not in caught.value.message


def test_a_revoked_key_speaks_for_nobody() -> None:
    registry = REGISTRY.apply(ApiKeyRevoked(tenant="acme", at_us=1, key_id=KEY.key_id))
    with pytest.raises(Unauthenticated, match="revoked"):
        authenticate(registry, KEY.secret)


def test_the_header_is_bearer_in_any_case() -> None:
    assert bearer({"authorization": "bearer  k "}) == "k"
    assert bearer({}) is None
    with pytest.raises(Unauthenticated, match="Basic"):
        bearer({"authorization": "Basic eDp5"})


def test_a_socket_takes_the_header_then_a_subprotocol_then_the_query() -> None:
    offered = [SUBPROTOCOL, KEY_SUBPROTOCOL_PREFIX + "p"]
    assert websocket_key({"authorization": "Bearer h"}, {"api_key": "q"}, offered) == "h"
    assert websocket_key({}, {"api_key": "q"}, offered) == "p"
    assert websocket_key({}, {"api_key": "q"}, [SUBPROTOCOL]) == "q"
    assert websocket_key({}, {}, []) is None
