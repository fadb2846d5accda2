"""API keys: `hr_<key id>_<secret>`. The log keeps the key id and a hash, never the key."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

_KEY = re.compile(r"hr_([0-9a-f]{12})_[0-9a-f]{40}")
KEY_RANDOM_BYTES = 26


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A new key; `secret` is shown once, to its owner."""

    key_id: str
    secret: str
    sha256: str


def new_api_key(entropy: bytes) -> ApiKey:
    """A key made of 26 random bytes (`secrets.token_bytes(KEY_RANDOM_BYTES)`)."""
    if len(entropy) != KEY_RANDOM_BYTES:
        raise ValueError(f"an API key takes {KEY_RANDOM_BYTES} random bytes, got {len(entropy)}")
    key_id, rest = entropy[:6].hex(), entropy[6:].hex()
    secret = f"hr_{key_id}_{rest}"
    return ApiKey(key_id, secret, hash_api_key(secret))


def hash_api_key(secret: str) -> str:
    """SHA-256, lower-case hex. 160 random bits need no slow hash: there is nothing to guess."""
    return hashlib.sha256(secret.encode()).hexdigest()


def key_id_of(secret: str) -> str | None:
    """The public part of a well-formed key, else None."""
    match = _KEY.fullmatch(secret)
    return match[1] if match else None
