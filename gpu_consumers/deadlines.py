"""Which requests are past their deadline."""

from __future__ import annotations

from bisect import bisect_left, insort


class Deadlines:
    """Deadlines of live requests, the earliest first. Pure; a request without a deadline is not in it."""

    def __init__(self) -> None:
        self._by_request: dict[str, int] = {}
        self._by_time: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._by_time)

    @property
    def next_at_us(self) -> int | None:
        """The earliest one."""
        return self._by_time[0][0] if self._by_time else None

    def add(self, request_id: str, deadline_at_us: int | None) -> None:
        if deadline_at_us is not None:
            self._by_request[request_id] = deadline_at_us
            insort(self._by_time, (deadline_at_us, request_id))

    def remove(self, request_id: str) -> None:
        deadline_at_us = self._by_request.pop(request_id, None)
        if deadline_at_us is not None:
            del self._by_time[bisect_left(self._by_time, (deadline_at_us, request_id))]

    def past(self, now_us: int) -> list[str]:
        """Those whose time has come, in the order of their deadlines; they stay until they are removed."""
        return [request_id for _, request_id in self._by_time[: bisect_left(self._by_time, (now_us + 1, ""))]]
