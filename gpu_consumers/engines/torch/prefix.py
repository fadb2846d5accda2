"""Names for what a block holds: its tokens and all before them, within one tenant.

A key is a hash over the key before it and the block's tokens, so equal keys mean equal sequences from the first token
on. The first link is the tenant's: equal prompts of two tenants have different keys, and nobody can learn from the
time of an answer what another tenant has asked.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence

_KEY_BYTES = 16  # of BLAKE2b: nobody finds two sequences of one key


def cache_salt(tenant: str, adapter: str | None) -> str:
    """What tells sequences apart that must not share keys and values: whose they are, and which adapter made them.

    Names of tenants and adapters hold no "/" (schemas/names.py).
    """
    return tenant if adapter is None else f"{tenant}/{adapter}"


def first_key(salt: str) -> bytes:
    """What stands before the first block of this tenant's sequences."""
    return hashlib.blake2b(salt.encode(), digest_size=_KEY_BYTES).digest()


def next_key(before: bytes, token_ids: Sequence[int]) -> bytes:
    """The key of a block of these tokens behind a block of that key."""
    return hashlib.blake2b(before + array("q", token_ids).tobytes(), digest_size=_KEY_BYTES).digest()


class PrefixChain:
    """The keys of one sequence, block by block as its tokens are run."""

    def __init__(self, salt: str, block_tokens: int) -> None:
        self.blocks = 0  # full ones
        self._block_tokens = block_tokens
        self._key = first_key(salt)
        self._rest: list[int] = []  # tokens of the block that is not full yet

    def push(self, token_ids: Sequence[int]) -> list[bytes]:
        """Tokens were run; the keys of the blocks that they have filled."""
        self._rest.extend(token_ids)
        keys = []
        while len(self._rest) >= self._block_tokens:
            self._key = next_key(self._key, self._rest[: self._block_tokens])
            del self._rest[: self._block_tokens]
            keys.append(self._key)
            self.blocks += 1
        return keys
