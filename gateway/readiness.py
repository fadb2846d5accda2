"""Whether the log answers: asked at most once in CHECK_SECONDS, however often it is asked for."""

from __future__ import annotations

import asyncio

from eventlog.errors import EventLogError
from eventlog.profile import BrokerProfile
from eventlog.reader import LogReader
from schemas.topics import CONTROL_TENANTS

CHECK_SECONDS = 2.0
_ANSWER_SECONDS = 1.5


class Readiness:
    """Asks the broker about a control topic, again and again."""

    def __init__(self, profile: BrokerProfile, *, client_id: str) -> None:
        self._profile = profile
        self._client_id = client_id
        self.log_answers = True  # whoever starts this has just read the registry

    async def run(self) -> None:
        """Keep `log_answers` current until cancelled."""
        reader = LogReader(self._profile, client_id=self._client_id)
        check: asyncio.Future[bool] | None = None
        try:
            while True:
                check = asyncio.ensure_future(asyncio.to_thread(_answers, reader))
                self.log_answers = await asyncio.shield(check)
                await asyncio.sleep(CHECK_SECONDS)
        finally:
            if check is not None:
                await asyncio.wait({check})  # its thread still uses the reader
            reader.close()


def _answers(reader: LogReader) -> bool:
    try:
        reader.bounds(CONTROL_TENANTS.name, 0, _ANSWER_SECONDS)
    except EventLogError:
        return False
    return True
