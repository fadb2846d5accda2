"""Where a schema registry is. Apart from what talks to it, so that who only names it imports no HTTP client."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RegistryAddress:
    """Where a registry with Confluent's API is, and who asks.

    url: where `/schemas/ids/1` can be appended. username and password, or token, if it wants any.
    ca_location: the CA certificates (PEM) to trust; None: the usual ones.
    """

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca_location: Path | None = None
