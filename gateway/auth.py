"""Who is asking: an API key speaks for a tenant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eventlog.registry import Registry
from gateway.errors import Unauthenticated
from schemas.events import TenantRegistered

# A browser can't set headers on a WebSocket: it offers these two subprotocols, and the first one is answered.
SUBPROTOCOL = "headrace.v1"
KEY_SUBPROTOCOL_PREFIX = "headrace.api-key."


def authenticate(registry: Registry, secret: str | None) -> TenantRegistered:
    """The tenant for which this key speaks. Raises Unauthenticated, and never repeats the key."""
    if not secret:
        raise Unauthenticated("no API key: send 'Authorization: Bearer hr_...'", code="missing_api_key")
    tenant = registry.tenant_for_key(secret)
    if tenant is None:
        raise Unauthenticated("this API key is not known or was revoked")
    return tenant


def bearer(headers: Mapping[str, str]) -> str | None:
    """The key of an Authorization header. Raises Unauthenticated for another scheme."""
    value = headers.get("authorization")
    if value is None:
        return None
    scheme, _, secret = value.partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthenticated(f"Authorization must be 'Bearer hr_...', not {scheme[:20]!r}")
    return secret.strip()


def websocket_key(
    headers: Mapping[str, str], query: Mapping[str, str], subprotocols: Iterable[str]
) -> str | None:  # fmt: skip
    """The key of a WebSocket handshake: the Authorization header, else a `headrace.api-key.<key>` subprotocol, else
    `?api_key=` (the last resort: queries end up in the access logs of proxies).
    """
    offered = (
        name.removeprefix(KEY_SUBPROTOCOL_PREFIX) for name in subprotocols if name.startswith(KEY_SUBPROTOCOL_PREFIX)
    )
    return bearer(headers) or next(offered, None) or query.get("api_key")
