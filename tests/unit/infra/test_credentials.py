from __future__ import annotations

from pathlib import Path

import pytest

from infra.credentials import ensure_credentials, read_credentials
from infra.errors import CredentialsUnreadable


def test_a_key_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    file = tmp_path / "credentials.json"
    assert read_credentials(file) is None

    made = ensure_credentials(file)

    assert made.tenant == "demo"
    assert made.api_key.startswith(f"hr_{made.key_id}_")
    assert file.stat().st_mode & 0o777 == 0o600
    assert ensure_credentials(file) == read_credentials(file) == made


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"tenant": "demo", "api_key": "sk-1"}'])
def test_a_file_that_holds_no_key_is_an_error_that_says_the_way_out(tmp_path: Path, content: str) -> None:
    file = tmp_path / "credentials.json"
    file.write_text(content)

    with pytest.raises(CredentialsUnreadable, match="remove it"):
        ensure_credentials(file)
