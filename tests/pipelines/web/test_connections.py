"""Which connections are kept for the next request, as the server of a real socket sees it: by the client's port."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from http.client import HTTPException, IncompleteRead
from http.server import BaseHTTPRequestHandler

import pytest

from pipelines.web.addresses import AddressBook
from pipelines.web.connections import Connections
from pipelines.web.targets import parse_target

Ask = Callable[[str], bytes | None]


@pytest.fixture
def ports() -> list[int]:
    """Where the requests came from, in order."""
    return []


@pytest.fixture
def script(ports: list[int]) -> Callable[..., Callable[[BaseHTTPRequestHandler], None]]:
    """`script(raw answer)`: what is sent, as it stands; `ends=True` closes the connection after it."""

    def make(answer: bytes, *, ends: bool = False) -> Callable[[BaseHTTPRequestHandler], None]:
        def send(handler: BaseHTTPRequestHandler) -> None:
            ports.append(handler.client_address[1])
            handler.wfile.write(answer)
            handler.close_connection = ends

        return send

    return make


@pytest.fixture
def ask(web) -> Iterator[Ask]:
    """Return the body of a path; None, unread, where it is no success."""
    connections = Connections(AddressBook(allow_hosts=[f"127.0.0.1:{web.port}"]))

    def get(path: str) -> bytes | None:
        with connections.asking(parse_target(f"{web.url}{path}"), {}) as reply:
            return b"".join(reply.pieces()) if reply.status == 200 else None

    yield get
    connections.close()


PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n3\r\nay!\r\n0\r\n\r\n"
EMPTY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
CONTINUED = b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN


def test_a_connection_read_to_its_end_is_used_again(web, script, ask: Ask, ports: list[int]) -> None:
    answers = {"/plain": PLAIN, "/chunked": CHUNKED, "/empty": EMPTY, "/continued": CONTINUED}
    web.scripts |= {path: script(answer) for path, answer in answers.items()}
    assert [ask(path) for path in (*answers, "/plain")] == [b"ok", b"okay!", b"", b"ok", b"ok"]
    assert len(set(ports)) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone",
        b"HTTP/1.1 500 Oh\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nnone\r\n0\r\n\r\n",
    ],
)
def test_one_with_something_unread_is_not(web, script, ask: Ask, ports: list[int], answer: bytes) -> None:
    web.scripts |= {"/gone": script(answer), "/plain": script(PLAIN)}
    assert [ask("/gone"), ask("/plain")] == [None, b"ok"]
    assert len(set(ports)) == 2


def test_one_that_its_host_closed_meanwhile_is_replaced(web, script, ask: Ask, ports: list[int]) -> None:
    web.scripts |= {"/a": script(PLAIN), "/last": script(PLAIN, ends=True)}
    assert [ask("/a"), ask("/last")] == [b"ok", b"ok"]
    time.sleep(0.1)  # until the end of the connection is there
    assert ask("/a") == b"ok"
    assert len(set(ports)) == 2


def test_one_until_the_close_ends_with_its_body(web, script, ask: Ask, ports: list[int]) -> None:
    web.scripts |= {"/old": script(b"HTTP/1.0 200 OK\r\n\r\nall of it", ends=True), "/plain": script(PLAIN)}
    assert [ask("/old"), ask("/plain")] == [b"all of it", b"ok"]
    assert len(set(ports)) == 2


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", IncompleteRead),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nok", IncompleteRead),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!", HTTPException),
        (b"220 ready for mail\r\n", HTTPException),
    ],
)
def test_a_broken_answer_raises_and_its_connection_is_gone(
    web, script, ask: Ask, ports: list[int], answer: bytes, error: type[Exception]
) -> None:
    web.scripts |= {"/broken": script(answer, ends=True), "/plain": script(PLAIN)}
    with pytest.raises(error):
        ask("/broken")
    assert ask("/plain") == b"ok"
    assert len(set(ports)) == 2


def test_no_more_than_some_wait_for_another_request(web, script, ports: list[int]) -> None:
    web.scripts["/plain"] = script(PLAIN)
    connections = Connections(AddressBook(allow_hosts=[f"127.0.0.1:{web.port}"]), max_idle=1)
    target = parse_target(f"{web.url}/plain")
    for _ in range(2):
        with connections.asking(target, {}) as one, connections.asking(target, {}) as other:
            assert [b"".join(reply.pieces()) for reply in (one, other)] == [b"ok", b"ok"]
    connections.close()
    assert len(set(ports)) == 3  # two at once, of which one was kept
