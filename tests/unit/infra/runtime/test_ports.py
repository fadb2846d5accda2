from __future__ import annotations

import socket

import pytest

from infra.errors import PortTaken, PortUnusable
from infra.runtime.ports import LOOPBACK, claim_port, free_port


def test_a_free_port_is_given_back_as_it_is() -> None:
    port = free_port()

    assert claim_port(port, "HEADRACE_GATEWAY_PORT") == port


def test_zero_takes_any_free_port() -> None:
    assert 0 < claim_port(0, "HEADRACE_GATEWAY_PORT") < 65_536


def test_a_taken_port_is_an_error_that_names_the_setting() -> None:
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen()
        port = listener.getsockname()[1]

        with pytest.raises(PortTaken, match=f"Port {port} .* HEADRACE_GATEWAY_PORT"):
            claim_port(port, "HEADRACE_GATEWAY_PORT")


def test_a_port_whose_listener_just_closed_its_connections_is_free() -> None:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((LOOPBACK, 0))
        listener.listen()
        port = listener.getsockname()[1]
        client = socket.create_connection((LOOPBACK, port))
        server, _ = listener.accept()
        server.close()  # this side goes to TIME_WAIT
        client.close()

    assert claim_port(port, "HEADRACE_GATEWAY_PORT") == port


@pytest.mark.parametrize("port", [0, 18080])
@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_that_is_not_this_machines_is_an_error_that_says_so(host: str, port: int) -> None:
    with pytest.raises(PortUnusable, match=f"Port {port} on {host} cannot be listened on"):
        claim_port(port, "HEADRACE_GATEWAY_PORT", host)
