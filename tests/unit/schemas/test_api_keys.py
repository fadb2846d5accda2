from __future__ import annotations

import pytest

from schemas.api_keys import hash_api_key, key_id_of, new_api_key


def test_a_key_carries_its_id_and_is_known_by_its_hash() -> None:
    key = new_api_key(bytes(range(26)))
    assert key.secret.startswith(f"hr_{key.key_id}_")
    assert key_id_of(key.secret) == key.key_id == "000102030405"
    assert key.sha256 == hash_api_key(key.secret)
    assert key.secret not in key.sha256


@pytest.mark.parametrize("text", ["", "sk-abc", "hr_short_1", "hr_000102030405_" + "z" * 40])
def test_what_is_no_key_has_no_id(text: str) -> None:
    assert key_id_of(text) is None


def test_too_little_randomness_is_refused() -> None:
    with pytest.raises(ValueError, match="takes 26 random bytes, got 8"):
        new_api_key(bytes(8))
