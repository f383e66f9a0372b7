"""One request over real sockets: which connections are kept, and that nothing a host sends is more than a failure.

With a detour, name and certificate are those of the URL's host, wherever the connection goes.
"""

import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest.mock import Mock

import pytest
from loopback import Quiet, running

from pipelines.settings import HttpConfig
from pipelines.web.addresses import AddressBook
from pipelines.web.requests import FetchFailed, Kind, parse_target
from pipelines.web.transport import Transport
from schemas.failures import Reason

Ask = Callable[[str], bytes]


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
    """Return the body of a path, empty where it is no success."""
    transport = Transport(HttpConfig(allow_hosts=(f"127.0.0.1:{web.port}",)))

    def get(path: str) -> bytes:
        return transport.ask(parse_target(f"{web.url}{path}"), {}, budget_s=10.0).body

    yield get
    transport._pools.clear()


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
    assert [ask("/gone"), ask("/plain")] == [b"", b"ok"]
    assert len(set(ports)) == 2


def test_one_that_its_host_closed_meanwhile_is_replaced(web, script, ask: Ask, ports: list[int]) -> None:
    web.scripts |= {"/a": script(PLAIN), "/last": script(PLAIN, ends=True)}
    assert [ask("/a"), ask("/last")] == [b"ok", b"ok"]
    web.ended.wait(10)  # until the end of the connection is there
    assert ask("/a") == b"ok"
    assert len(set(ports)) == 2


def test_one_until_the_close_ends_with_its_body(web, script, ask: Ask, ports: list[int]) -> None:
    web.scripts |= {"/old": script(b"HTTP/1.0 200 OK\r\n\r\nall of it", ends=True), "/plain": script(PLAIN)}
    assert [ask("/old"), ask("/plain")] == [b"all of it", b"ok"]
    assert len(set(ports)) == 2


LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: %s\r\n\r\nok!"
BROKEN = {
    "short": (LENGTH % b"9", Reason.TRUNCATED),
    "short chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nok", Reason.TRUNCATED),
    "two lengths": (LENGTH % b"2\r\nContent-Length: 3", Reason.CONNECTION_FAILED),
    "two in one": (LENGTH % b"2, 3", Reason.CONNECTION_FAILED),
    "5,000 digits": (LENGTH % (b"9" * 5000), Reason.CONNECTION_FAILED),
    "negative": (LENGTH % b"-1", Reason.CONNECTION_FAILED),
    "no number": (LENGTH % "²".encode(), Reason.CONNECTION_FAILED),
    "early hints": (b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + PLAIN, Reason.CONNECTION_FAILED),
    "a chunk of no length": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nok\r\n0\r\n\r\n", Reason.TRUNCATED,
    ),
    "mail": (b"220 ready for mail\r\n", Reason.CONNECTION_FAILED),
    "status 0": (b"HTTP/1.1 000 What\r\n\r\n", Reason.CONNECTION_FAILED),
    "a colon alone": (b"HTTP/1.1 200 OK\r\n: x\r\nContent-Length: x\r\n\r\n", Reason.CONNECTION_FAILED),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_answer_is_a_failure_and_its_connection_is_gone(
    web, script, ask: Ask, ports: list[int], name: str
) -> None:
    answer, reason = BROKEN[name]
    web.scripts |= {"/broken": script(answer, ends=True), "/plain": script(PLAIN)}
    with pytest.raises(FetchFailed) as caught:
        ask("/broken")
    assert caught.value.reason is reason and " at 0x" not in caught.value.message
    assert ask("/plain") == b"ok"
    assert len(set(ports)) == 2


def reason_of(transport: Transport, url: str, *, budget_s: float) -> tuple[Reason, float]:
    began = time.monotonic()
    with pytest.raises(FetchFailed) as caught:
        transport.ask(parse_target(url), {}, budget_s=budget_s)
    return caught.value.reason, time.monotonic() - began


def test_a_name_server_that_is_silent_meets_the_limit() -> None:
    released = threading.Event()

    def silent(host: str, port: int) -> list[str]:
        released.wait(30)
        return []

    transport = Transport(HttpConfig(), AddressBook(lookup=silent))
    reason, took_s = reason_of(transport, "http://slow.example/", budget_s=0.3)
    released.set()
    assert reason is Reason.CONNECTION_FAILED and took_s < 10


@pytest.fixture
def full_port() -> Iterator[int]:
    """A port whose queue of connections is full: another one is neither taken nor refused."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        yield server.getsockname()[1]


@pytest.mark.parametrize(("connect_s", "budget_s"), [(0.4, 60.0), (60.0, 0.4)])
def test_all_addresses_of_a_host_share_the_time_to_connect(full_port: int, connect_s: float, budget_s: float) -> None:
    book = AddressBook(allow_hosts=[f"many.example:{full_port}"], lookup=lambda host, port: ["127.0.0.1"] * 60)
    transport = Transport(HttpConfig(connect_timeout_s=connect_s), book)
    reason, took_s = reason_of(transport, f"http://many.example:{full_port}/", budget_s=budget_s)
    assert reason is Reason.CONNECTION_FAILED and took_s < 10


def test_a_later_address_is_tried_where_the_first_takes_no_connection(web, script, full_port: int) -> None:
    web.scripts["/plain"] = script(PLAIN)
    book = AddressBook(allow_hosts=[f"two.example:{web.port}"], lookup=lambda host, port: ["127.0.0.2", "127.0.0.1"])
    target = parse_target(f"http://two.example:{web.port}/plain")
    assert Transport(HttpConfig(), book).ask(target, {}, budget_s=20.0).body == b"ok"


def test_no_file_descriptors_left_is_about_the_machine(web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.create_connection", Mock(side_effect=OSError(24, "Too many open files")))
    transport = Transport(HttpConfig(allow_hosts=(f"127.0.0.1:{web.port}",)))
    with pytest.raises(OSError, match="Too many open files"):
        transport.ask(parse_target(f"{web.url}/"), {}, budget_s=10.0)


HOST = "pictures.example"


@pytest.fixture
def secure(tmp_path, monkeypatch):
    """(port, certificate, names asked for) of a server that is `pictures.example`."""
    if shutil.which("openssl") is None:
        pytest.skip("makes its certificate with openssl")
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", f"/CN={HOST}"]
    subprocess.run([*command, "-addext", f"subjectAltName=DNS:{HOST}"], check=True, capture_output=True)
    names = []

    class Handler(Quiet):
        def answer(self) -> None:
            names.append(("host", self.headers["Host"]))
            self.send(200, b"ok")

    class Server(ThreadingHTTPServer):
        def handle_error(self, request, client_address) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.sni_callback = lambda _, name, __: names.append(("tls", name))
    server = Server(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with running(server):
        yield server.server_address[1], certificate, names


def test_names_and_certificate_are_of_the_true_host(secure, client_of) -> None:
    port, certificate, names = secure
    reach = {"allow_hosts": (f"127.0.0.1:{port}",), "ca_bundle": str(certificate), "attempts": 1}
    client = client_of(connect_to=(f"{HOST}=127.0.0.1:{port}", f"other.example=127.0.0.1:{port}"), **reach)
    assert client.body(client.get(f"https://{HOST}/a", source="s", kind=Kind.API)) == b"ok"
    assert names == [("tls", HOST), ("host", HOST)]
    with pytest.raises(FetchFailed, match=f"{Reason.CONNECTION_FAILED}.* certificate"):
        client.get("https://other.example/a", source="s", kind=Kind.API)


def test_an_unknown_authority_is_not_trusted(secure, client_of) -> None:
    port, _, _ = secure
    client = client_of(connect_to=(f"{HOST}=127.0.0.1:{port}",), allow_hosts=(f"127.0.0.1:{port}",), attempts=1)
    with pytest.raises(FetchFailed, match="certificate"):
        client.get(f"https://{HOST}/a", source="s", kind=Kind.API)
