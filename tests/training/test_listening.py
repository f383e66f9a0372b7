"""Where servers listen."""

import socket
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from schemas.errors import UsageError
from training.listening import bind


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        pytest.param("::1", marks=pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")),
    ],
)
def test_whoever_follows_the_address_gets_through(host: str) -> None:
    address = bind(host, 0)
    parts = urlsplit(address.url)
    assert parts.hostname == host
    with closing(address.bound), socket.create_connection((host, parts.port or 0), timeout=60):
        address.bound.accept()[0].close()


@pytest.mark.parametrize("host", ["203.0.113.1", "2001:db8::1", "no such host"])
def test_an_address_that_is_not_here_is_one_line(host: str) -> None:
    with pytest.raises(UsageError, match=f"--host {host} --port 0: "):
        bind(host, 0)
