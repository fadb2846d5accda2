"""A sink in a process of its own that can be killed, by us at any moment or by itself at a chosen one.

Arguments: the broker, its kind, the path of the database, the consumer group, and optionally where it dies:
`insert:<table>:<before|after>:<n>` or `commit:<before|after>:<n>`, the n-th time (from 1). It prints the port of its
HTTP interface when it is ready.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eventlog.profile import BrokerProfile
from infra.clickhouse.interface import HttpInterface
from infra.clickhouse.schema import load_migrations
from streams.sink.clickhouse import EmbeddedClickHouse
from streams.sink.consumer import SinkConsumer
from streams.sink.rows import Rows
from streams.sink.service import run
from streams.sink.settings import SinkSettings
from streams.sink.store import Store


def main(bootstrap: str, kind: str, path: str, group: str, dies_at: str) -> None:
    if dies_at:
        _die_at(*dies_at.split(":"))
    ports: list[int] = []
    settings = SinkSettings(
        BrokerProfile(bootstrap, "kafka" if kind == "kafka" else "embedded"),
        EmbeddedClickHouse(Path(path)),
        load_migrations(),
        read_interface=HttpInterface(port=0, listening=ports.append),
        group=group,
        batch_rows=150,
        batch_seconds=0.05,
    )
    asyncio.run(_run(settings, ports))


async def _run(settings: SinkSettings, ports: list[int]) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await run(settings, stop=stop, ready=lambda: print(ports[0], flush=True))


def _die_at(what: str, *where: str) -> None:
    *table, when, nth = where
    real: Callable[..., Any] = Store.insert if what == "insert" else SinkConsumer._commit
    calls = 0

    def dying(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        mine = what == "commit" or (isinstance(arguments[1], Rows) and arguments[1].table == table[0])
        calls += mine
        dies = mine and calls == int(nth)
        if dies and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*arguments, **named)
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    if what == "insert":
        Store.insert = dying  # type: ignore[method-assign]
    else:
        SinkConsumer._commit = dying  # type: ignore[method-assign]


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    main(*sys.argv[1:6])
