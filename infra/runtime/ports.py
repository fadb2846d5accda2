"""Ports: which are free, and a clear error for one that is taken."""

from __future__ import annotations

import errno
import socket

from infra.errors import NoFreePort, PortTaken, PortUnusable

LOOPBACK = "127.0.0.1"


def free_port(host: str = LOOPBACK) -> int:
    """A port that nothing listens on now. Nothing reserves it: bind it soon.

    Raises NoFreePort.
    """
    with socket.socket() as probe:
        try:
            probe.bind((host, 0))
        except OSError as error:
            raise NoFreePort(host, error.strerror or str(error)) from error
        port: int = probe.getsockname()[1]
        return port


def claim_port(port: int, setting: str, host: str = LOOPBACK) -> int:
    """`port` itself if a listener can have it, any free one if it is 0.

    `setting` is what the user changes to move the listener. Raises PortTaken where another listener has it,
    PortUnusable where the system refuses it (a privileged port, a host that is not this machine's).
    """
    error = _listen_error(port, host)
    if error is None:
        return port or free_port(host)
    if error.errno == errno.EADDRINUSE:
        raise PortTaken(host, port, setting)
    raise PortUnusable(host, port, setting, error.strerror or str(error))


def _listen_error(port: int, host: str) -> OSError | None:
    with socket.socket() as probe:
        # Without this, the connections of a server that just stopped (TIME_WAIT) would look like a running one.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            return error
    return None
