"""Where servers listen, and how long they wait for a request."""

import socket
import threading
from contextlib import closing
from http.client import HTTPResponse
from urllib.parse import urlsplit

import pytest
import uvicorn
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from schemas.messages import UsageError
from training import listening
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


def test_an_address_in_use_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UsageError, match=f"--host 127.0.0.1 --port {port}: .*in use"):
            bind("127.0.0.1", port)


def test_a_request_that_does_not_arrive_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A header that stops half-way, one that trickles, and a body that does not come hold no connection."""
    monkeypatch.setattr(listening, "REQUEST_S", 0.5)
    address = bind("127.0.0.1", 0)

    async def read(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = Response(str(len(await listening.read_body(receive, most_bytes=100))))
        except listening.RequestError as problem:
            response = Response(str(problem), status_code=problem.status)
        await response(scope, receive, send)

    server = uvicorn.Server(uvicorn.Config(read, http=listening.TimedProtocol, lifespan="off", log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [address.bound]}, daemon=True)
    thread.start()
    port = address.bound.getsockname()[1]
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as half:
            half.sendall(b"POST / HTTP/1.1\r\nHost: a\r\n")
            assert half.recv(1000) == b""
        header = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
        with socket.create_connection(("127.0.0.1", port), timeout=60) as late:
            late.sendall(header + b"[1,")
            assert late.recv(1000).startswith(b"HTTP/1.1 408")
        with socket.create_connection(("127.0.0.1", port), timeout=60) as whole:
            whole.sendall(header + b"[1,2,3,4]")
            answer = HTTPResponse(whole)
            answer.begin()
            assert answer.read() == b"9"
            whole.sendall(b"POST / HT")
            assert whole.recv(1000) == b""
    finally:
        server.should_exit = True
        thread.join(60)
