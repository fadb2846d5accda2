"""Request ids: UUIDv7 (RFC 9562) whose last 16 bits hold the token-log partition.

From the id alone, any gateway knows where the response's log is (the partition) and where to start reading (the
time). The client sees `resp_<32 hex digits>`; events hold the 36-character UUID.
"""

from __future__ import annotations

import re
from uuid import UUID

from .errors import InvalidName

MAX_PARTITION = 0xFFFF
RANDOM_BITS = 58  # 12 behind the version, 46 behind the variant
_RESPONSE_ID = re.compile(r"(?:resp_|chatcmpl-|cmpl-)([0-9a-f]{32})")


def new_request_id(*, now_ms: int, partition: int, entropy: int) -> str:
    """An id for a request whose token log is in `partition`.

    now_ms: milliseconds since the Unix epoch; ids sort by it.
    entropy: at least 58 random bits (`secrets.randbits(RANDOM_BITS)`), or a digest for a derived id; more are cut.
    """
    if not 0 <= partition <= MAX_PARTITION:
        raise InvalidName(f"partition {partition} does not fit into 16 bits")
    high, low = (entropy >> 46) & 0xFFF, entropy & ((1 << 46) - 1)
    value = (now_ms & ((1 << 48) - 1)) << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low << 16 | partition
    digits = f"{value:032x}"  # str(UUID(...)) takes three times as long, and clients make many
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def partition_of(request_id: str) -> int:
    """The token-log partition in a request id. Raises InvalidName for anything but a UUIDv7."""
    return _parse(request_id).int & MAX_PARTITION


def created_ms_of(request_id: str) -> int:
    """When the id was made, milliseconds since the Unix epoch. Raises InvalidName for anything but a UUIDv7."""
    return _parse(request_id).int >> 80


def response_id_of(request_id: str, prefix: str = "resp_") -> str:
    """What the client sees: `resp_...`, or `chatcmpl-...` for chat completions."""
    return prefix + _parse(request_id).hex


def request_id_of(response_id: str) -> str:
    """The request id behind what the client sees; a bare request id is taken too. Raises InvalidName."""
    match = _RESPONSE_ID.fullmatch(response_id)
    return str(_parse(match[1] if match else response_id))


def _parse(text: str) -> UUID:
    try:
        value = UUID(text)
    except ValueError:
        raise InvalidName(f"{text!r} is not a request id (UUIDv7)") from None
    if value.version != 7:
        raise InvalidName(f"{text!r} is a UUID of version {value.version}, request ids are of version 7")
    return value
