"""How a stream is set up."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from headrace_client.backoff import Backoff
from headrace_client.errors import InvalidRequest
from headrace_client.response_state import Limits

_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """What Stream and SyncStream are made with.

    url: of a gateway, `http://host:port` or `ws://host:port`; several behind one name are fine: any can resume.
    headers: further ones, such as traceparent. tls: None: the system's certificates.
    connect_s: longest for a connection and its upgrade. reconnect: how often a lost one is tried again.
    ping_s: a socket that has been silent so long is asked whether it lives, and dropped if it does not answer in as
        long again.
    max_frame_bytes: a longer frame is a broken connection.
    limits: of the buffers between socket and readers.
    """

    url: str
    api_key: str
    headers: Mapping[str, str] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None
    connect_s: float = 10.0
    reconnect: Backoff = field(default=Backoff(first_s=0.1, most_s=5.0, attempts=20))
    ping_s: float = 20.0
    max_frame_bytes: int = 16 * 1024 * 1024
    limits: Limits = field(default=Limits())

    def endpoint(self) -> str:
        """`ws://host:port/v1/responses`. Raises InvalidRequest for anything but http, https, ws and wss."""
        parts = urlsplit(self.url)
        if parts.scheme not in _SCHEMES or not parts.netloc:
            raise InvalidRequest(f"{self.url!r} is no gateway's address: write it as http://host:port")
        path = parts.path.rstrip("/")
        return f"{_SCHEMES[parts.scheme]}://{parts.netloc}{path.removesuffix('/v1/responses')}/v1/responses"

    def authorization(self) -> str:
        """The header. Raises InvalidRequest for a key that no header can carry; its message does not show the key."""
        if not (self.api_key.isascii() and self.api_key.isprintable()):
            raise InvalidRequest("the API key has a line end, or another character that no key has: was it read whole?")
        return f"Bearer {self.api_key}"

    @property
    def proxy(self) -> Literal[True] | None:
        """Whether the environment's proxies are looked at."""
        return None if urlsplit(self.url).hostname in _LOOPBACK else True
