"""Connections that go to checked addresses alone, kept open between requests.

The request stays what it was: the Host header, the TLS server name and the certificate check all use the URL's host;
only where the TCP connection goes comes from the `AddressBook`. The protocol is the standard library's `http.client`,
which takes a third of the processor time that urllib3 takes around it. Nothing here reads proxy variables of the
environment.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead

import certifi
from urllib3.util import wait_for_read

from pipelines.web import deadline
from pipelines.web.addresses import AddressBook
from pipelines.web.targets import Target

_PIECE_BYTES = 65_536


class Reply:
    """A response whose body is still to be read; the names of `fields` are in lower case.

    Raises:
        HTTPException: it has two lengths: where its body ends is anyone's guess.
    """

    def __init__(self, response: HTTPResponse) -> None:
        lengths = {text.strip() for text in (response.getheader("content-length") or "").split(",")}
        if len(lengths) > 1:
            raise HTTPException(f"several lengths: {', '.join(sorted(lengths))}")
        self.status = response.status
        self.fields = {name.lower(): value for name, value in response.getheaders()}
        self._response = response
        self._left = response.length  # None where it is not announced

    @property
    def is_read(self) -> bool:
        """Return whether nothing of it is left on the connection."""
        return self._left == 0 or self._response.isclosed()

    def pieces(self) -> Iterator[bytes]:
        """Yield the body as it comes, with its content encoding.

        Raises:
            IncompleteRead: it ends before its announced length.
            OSError: the connection broke, or was silent for too long.
        """
        while self._left != 0:
            piece = self._response.read1(_PIECE_BYTES if self._left is None else min(self._left, _PIECE_BYTES))
            if not piece:
                break
            if self._left is not None:
                self._left -= len(piece)
            yield piece
        if self._left:
            raise IncompleteRead(b"", self._left)


class Connections:
    """Connections of one configuration; thread-safe: each request has one to itself."""

    def __init__(
        self,
        addresses: AddressBook,
        *,
        ca_bundle: str = "",
        connect_timeout_s: float = 10.0,
        read_timeout_s: float = 20.0,
        max_idle: int = 64,
    ) -> None:
        self._addresses = addresses
        self._ca_bundle = ca_bundle
        self._tls: ssl.SSLContext | None = None
        self._connect_timeout_s = connect_timeout_s
        self._read_timeout_s = read_timeout_s
        self._max_idle = max_idle
        self._idle: list[_Connection] = []  # the last one was used last
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def asking(self, target: Target, headers: Mapping[str, str]) -> Iterator[Reply]:
        """Send a GET, and give its reply for a block.

        Raises:
            FetchFailed: the host's addresses are refused, or its name cannot be resolved.
            http.client.HTTPException: the host does not speak HTTP.
            OSError: no connection, a broken one, or silence for too long.
        """
        connection = self._take(target)
        is_whole = False
        try:
            connection.request("GET", target.path, headers=dict(headers))
            with contextlib.closing(connection.getresponse()) as response:
                reply = Reply(response)
                yield reply
                is_whole = reply.is_read and connection.sock is not None
        finally:
            if is_whole:
                self._keep(connection)
            else:
                connection.close()

    def close(self) -> None:
        """Close every idle connection."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def __del__(self) -> None:
        self.close()

    def _take(self, target: Target) -> _Connection:
        """Return an idle connection to a target's origin that its host has not closed, or a new one."""
        while (found := self._pop(target.origin)) is not None:
            if found.is_open:
                found.watch()
                return found
            found.close()
        tls = self._tls_context() if target.scheme == "https" else None
        return _Connection(
            target, self._addresses, tls, timeout_s=self._connect_timeout_s, read_timeout_s=self._read_timeout_s
        )

    def _pop(self, origin: str) -> _Connection | None:
        with self._lock:
            for place in range(len(self._idle) - 1, -1, -1):
                if self._idle[place].origin == origin:
                    return self._idle.pop(place)
        return None

    def _keep(self, connection: _Connection) -> None:
        with self._lock:
            self._idle.append(connection)
            oldest = self._idle.pop(0) if len(self._idle) > self._max_idle else None
        if oldest is not None:
            oldest.close()

    def _tls_context(self) -> ssl.SSLContext:
        with self._lock:
            if self._tls is None:  # reading the authorities takes as long as many requests
                self._tls = tls_context(self._ca_bundle)
            return self._tls


class _Connection(HTTPConnection):
    """Opens its socket at an address the book gives, when the first request is sent, under the thread's deadline."""

    def __init__(
        self,
        target: Target,
        addresses: AddressBook,
        tls: ssl.SSLContext | None,
        *,
        timeout_s: float,
        read_timeout_s: float,
    ) -> None:
        super().__init__(target.host, target.port)
        self.default_port = 443 if tls else 80  # a Host header names no other
        self.origin = target.origin
        self._addresses = addresses
        self._tls = tls
        self._timeout_s = timeout_s
        self._read_timeout_s = read_timeout_s

    def connect(self) -> None:
        opened = open_socket(self._addresses, self.host, self.port, timeout_s=self._timeout_s)
        self.sock = opened
        self.watch()
        if self._tls is not None:
            self.sock = self._tls.wrap_socket(opened, server_hostname=self.host)
        self.sock.settimeout(self._read_timeout_s)

    @property
    def is_open(self) -> bool:
        """Whether an idle connection can be used: one that has something to read was closed, or is out of step."""
        return self.sock is not None and not wait_for_read(self.sock, timeout=0)

    def watch(self) -> None:
        """Put the socket under the calling thread's deadline."""
        limit = deadline.current()
        if limit is not None:
            limit.watch(self.sock)


def open_socket(addresses: AddressBook, host: str, port: int, *, timeout_s: float | None) -> socket.socket:
    """Return a TCP connection to the first checked address of a host that takes one.

    Raises:
        FetchFailed: its addresses are refused, or its name cannot be resolved.
        OSError: none takes one; `TimeoutError` where the last of them was silent.
    """
    problem: OSError = ConnectionError(f"{host} has no address")
    for endpoint in addresses.endpoints(host, port):
        try:
            opened = socket.create_connection((endpoint.address, endpoint.port), timeout_s)
        except OSError as error:
            problem = error
            continue
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return opened
    raise problem


def tls_context(ca_bundle: str) -> ssl.SSLContext:
    """Return a verifying context that trusts the system's authorities, Mozilla's, and those of a file."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    if ca_bundle:
        context.load_verify_locations(ca_bundle)
    return context
