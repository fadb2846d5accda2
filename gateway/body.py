"""Reading a request body, no further than its limit."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from gateway.errors import RequestTooLarge
from gateway.fields import parse_json_object


async def read_json(request: Request, most_bytes: int) -> dict[str, Any]:
    """The JSON object that is the body. Raises RequestTooLarge as soon as it is clear, and InvalidRequest."""
    too_large = RequestTooLarge(f"the body is larger than {most_bytes} bytes, the limit of this gateway")
    announced = request.headers.get("content-length", "0")
    if announced.isdigit() and int(announced) > most_bytes:
        raise too_large
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > most_bytes:
            raise too_large
        parts.append(part)
    return parse_json_object(b"".join(parts))
