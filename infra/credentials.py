"""The demo tenant's API key: made once, kept in the data directory, readable by its owner only."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from infra.errors import CredentialsUnreadable
from infra.runtime.data_directory import write_whole
from schemas.api_keys import KEY_RANDOM_BYTES, hash_api_key, key_id_of, new_api_key

DEMO_TENANT = "demo"


@dataclass(frozen=True, slots=True)
class Credentials:
    """A tenant and the key that speaks for it."""

    tenant: str
    api_key: str

    @property
    def key_id(self) -> str:
        key_id = key_id_of(self.api_key)
        assert key_id is not None, "checked when it was read"
        return key_id

    @property
    def key_sha256(self) -> str:
        return hash_api_key(self.api_key)


def read_credentials(file: Path) -> Credentials | None:
    """What the file holds; None if there is none. Raises CredentialsUnreadable."""
    try:
        content = json.loads(file.read_text())
        credentials = Credentials(content["tenant"], content["api_key"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CredentialsUnreadable(file, f"{type(error).__name__}: {error}") from error
    if key_id_of(credentials.api_key) is None:
        raise CredentialsUnreadable(file, "its api_key is no key of ours")
    return credentials


def ensure_credentials(file: Path) -> Credentials:
    """What the file holds, or a new key that it holds now. Raises CredentialsUnreadable."""
    known = read_credentials(file)
    if known is not None:
        return known
    fresh = Credentials(DEMO_TENANT, new_api_key(secrets.token_bytes(KEY_RANDOM_BYTES)).secret)
    write_whole(file, json.dumps({"tenant": fresh.tenant, "api_key": fresh.api_key}, indent=2) + "\n", mode=0o600)
    return fresh
