"""JSON schemas on their way to the judge: on a thread of its own, so that nobody but schemas waits for schemas.

The judge (`models/schema_judge.py`) takes one at a time, up to seconds each. On asyncio's own threads a few of those
would hold all of them, and with them long prompts that wait to be tokenized.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from models.errors import SchemaJudgeBusyError
from models.schema_judge import SchemaJudge

_THREADS: Final = 1  # as many as the judge has use for


class SchemaChecks:
    """Owned by one event loop. Who waits for a turn is a coroutine: first come, first served.

    queue_seconds: how long a schema waits for those before it.
    """

    def __init__(self, judge: SchemaJudge, *, queue_seconds: float = 10.0) -> None:
        self._judge = judge
        self._queue_seconds = queue_seconds
        self._thread = ThreadPoolExecutor(_THREADS, thread_name_prefix="schema-checks")
        self._turn = asyncio.Lock()

    async def objection(self, json_schema: str) -> str | None:
        """Why no answer can be held to it, None if one can; at once where that was asked lately.

        Raises SchemaJudgeBusyError.
        """
        judged = self._judge.remembered(json_schema)
        if judged is not None:
            return judged.objection
        try:
            async with asyncio.timeout(self._queue_seconds):
                await self._turn.acquire()
        except TimeoutError:
            raise SchemaJudgeBusyError("too many JSON schemas wait to be checked") from None
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, self._judge.objection, json_schema)
        finally:
            self._turn.release()

    def close(self) -> None:
        """End the judge's process and the thread. Blocks for a moment; nothing is asked any more."""
        self._judge.close()
        self._thread.shutdown(cancel_futures=True)
        self._judge.close()  # of a process that had just been made
