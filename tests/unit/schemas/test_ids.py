from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from schemas.errors import InvalidName
from schemas.ids import new_request_id, partition_of, request_id_of


def test_an_id_is_a_uuid_of_version_7() -> None:
    value = UUID(new_request_id(now_ms=1_700_000_000_000, partition=3, entropy=(1 << 58) - 1))
    assert value.version == 7
    assert value.variant == "specified in RFC 4122"


def test_a_partition_past_16_bits_is_refused() -> None:
    with pytest.raises(InvalidName, match="65536 does not fit"):
        new_request_id(now_ms=0, partition=65536, entropy=0)


@pytest.mark.parametrize("text", ["", "resp_", "resp_xyz", "chat-1", "resp_" + "0" * 33])
def test_what_is_no_id_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidName, match="is not a request id"):
        request_id_of(text)


def test_a_uuid_of_another_version_is_refused() -> None:
    with pytest.raises(InvalidName, match="of version 4"):
        partition_of(str(uuid4()))
