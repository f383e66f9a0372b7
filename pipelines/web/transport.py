"""One request and its answer, over connections that go to checked addresses alone: urllib3, with a limit over it all.

No redirect is followed and nothing is tried again here. The request stays what it was: the Host header, the TLS server
name and the certificate check all use the URL's host; only where the TCP connection goes comes from the `AddressBook`.
Nothing here reads proxy variables of the environment.

A socket's own time-out begins again with every byte. So the sockets made here ask before each reading how much of the
calling thread's time is left: a host that sends a byte a second meets the limit, in headers, chunks and TLS alike. The
limit also holds for name servers and for all the addresses of a host that are tried. Bodies have a limit of bytes,
before and after decompression.
"""

from __future__ import annotations

import io
import logging
import math
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from http.client import HTTPException, IncompleteRead
from typing import TYPE_CHECKING, Any, cast

import certifi
from urllib3 import BaseHTTPResponse, PoolManager, Timeout
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import HTTPError

from pipelines.settings import HttpConfig
from pipelines.web.addresses import AddressBook, Endpoint
from pipelines.web.opt_outs import ROBOTS_HEADER, USAGES
from pipelines.web.requests import SUCCESSES, FetchFailed, Sink, Target
from schemas.failures import Reason, is_about_machine

if TYPE_CHECKING:
    import requests

_PIECE_BYTES = 65_536
_LENGTH_DIGITS = 18
_GZIP_WINDOW = 31  # zlib: the largest window, with a gzip header
_LEAST_CONNECT_S = 1.0  # for one of several addresses
_IDLE_HOSTS = 256  # whose connections are kept
_CAUSES: tuple[tuple[type[BaseException], str], ...] = (  # the first that fits; no second try changes these words
    (ssl.SSLCertVerificationError, "its certificate is not valid"),
    (ssl.SSLError, "it does not speak TLS"),
    (ConnectionRefusedError, "it refuses connections"),
    (TimeoutError, "it takes no connection in time"),
    (ConnectionError, "it closes the connection"),
    (OSError, "it cannot be reached"),
    (Exception, "it does not speak HTTP"),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request gave; the names of headers are in lower case, the body is empty unless it is a success.

    Of a header that came several times the last value is there; of X-Robots-Tag and preferences all, a line each.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


class _Limits(threading.local):
    """Of the calling thread: when its request must be over, and how long a host may be silent meanwhile."""

    ends = math.inf
    silence_s = 60.0

    def left_s(self, most_s: float) -> float:
        """Return the seconds left, at most so many.

        Raises:
            TimeoutError: none are.
        """
        left_s = min(self.ends - time.monotonic(), most_s)
        if left_s <= 0:
            raise TimeoutError
        return left_s


_LIMITS = _Limits()


class Transport:
    """Connections of one configuration, kept open between requests; thread-safe: each request has one to itself."""

    def __init__(self, config: HttpConfig, addresses: AddressBook | None = None) -> None:
        logging.getLogger("urllib3").setLevel(logging.CRITICAL)  # what an answer lacks is said by its failure
        self._config = config
        self._addresses = addresses or AddressBook(allow_hosts=config.allow_hosts, connect_to=config.connect_to)
        self._resolving = ThreadPoolExecutor(config.connections, "resolver")  # the system's resolver has no time-out
        self._pools = _Pools(
            num_pools=_IDLE_HOSTS, maxsize=config.connections_per_host, ssl_context=_tls_context(config.ca_bundle)
        )
        self._pools.transport = self

    def ask(self, target: Target, headers: Mapping[str, str], *, budget_s: float, sink: Sink | None = None) -> Answer:
        """Return the answer to one GET, whatever its status; with a sink, its body goes there and not into it.

        Raises:
            FetchFailed: there is none: CONNECTION_FAILED, TIMED_OUT, TRUNCATED, TOO_LARGE or ADDRESS_REFUSED.
        """
        _LIMITS.ends, _LIMITS.silence_s = time.monotonic() + budget_s, self._config.read_timeout_s
        response = None
        try:
            response = self._pools.connection_from_host(target.host, target.port, target.scheme).urlopen(
                "GET",
                target.url[len(target.origin) :],
                headers=headers,
                redirect=False,
                retries=False,
                assert_same_host=False,
                preload_content=False,
                decode_content=False,
                timeout=Timeout(connect=self._config.connect_timeout_s, read=self._config.read_timeout_s),
            )
            return _take(response, target, self._config, sink)
        except (HTTPError, HTTPException, OSError, ValueError) as error:
            problem = _failed(error, target)
        finally:
            _LIMITS.ends = math.inf
            if response is not None:
                response.close()  # does nothing to a connection whose body was read to its end
                response.release_conn()
        raise problem  # here, so that it keeps nothing of the library's alive

    def connect(self, host: str, port: int, *, seconds: float) -> socket.socket:
        """Return a TCP connection to the first checked address of a host that takes one, within so many seconds.

        Raises:
            FetchFailed: its addresses are refused, its name cannot be resolved, or none takes a connection.
        """
        try:
            ends = time.monotonic() + _LIMITS.left_s(seconds)
            endpoints = self._resolving.submit(self._addresses.endpoints, host, port).result(ends - time.monotonic())
            opened = _first_open(endpoints, ends)
            opened.settimeout(max(0.001, ends - time.monotonic()))  # for the TLS handshake
        except OSError as error:
            raise _unreachable(error, host) from error
        return opened

    def session(self) -> requests.Session:
        """Return a session for a library that brings its own requests (PRAW), over the same connections."""
        import requests  # PRAW alone needs it: a quarter of a second
        from requests.adapters import HTTPAdapter

        session = requests.Session()
        session.trust_env = False
        adapter = HTTPAdapter()
        adapter.poolmanager = self._pools
        session.mount("http://", adapter)
        session.mount("https://", adapter)
        return session


class _Pools(PoolManager):
    transport: Transport

    def _new_pool(
        self, scheme: str, host: str, port: int, request_context: dict[str, Any] | None = None
    ) -> HTTPConnectionPool:
        pool = super()._new_pool(scheme, host, port, request_context)
        pool.ConnectionCls = _CheckedTls if scheme == "https" else _Checked
        pool.conn_kw["transport"] = self.transport
        return pool


class _Checked(HTTPConnection):
    def __init__(self, *args: Any, transport: Transport, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._transport = transport

    def _new_conn(self) -> socket.socket:
        return self._transport.connect(self.host, self.port, seconds=self.timeout or 60.0)


class _CheckedTls(_Checked, HTTPSConnection):
    """The same under TLS."""


class _Socket(socket.socket):
    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        self.settimeout(_LIMITS.left_s(_LIMITS.silence_s))
        return super().recv_into(*args, **kwargs)


class _TlsSocket(ssl.SSLSocket):
    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        self.settimeout(_LIMITS.left_s(_LIMITS.silence_s))
        return super().recv_into(*args, **kwargs)


def _first_open(endpoints: list[Endpoint], ends: float) -> socket.socket:
    """Return a connection to the first endpoint that takes one; all of them share the time there is."""
    problem: OSError = TimeoutError()
    for number, endpoint in enumerate(endpoints):
        left_s = ends - time.monotonic()
        share_s = min(left_s, max(_LEAST_CONNECT_S, left_s / (len(endpoints) - number)))
        try:
            opened = socket.create_connection(endpoint, max(0.001, share_s))
            return _Socket(fileno=opened.detach())
        except OSError as error:
            problem = error
    raise problem


def _take(response: BaseHTTPResponse, target: Target, config: HttpConfig, sink: Sink | None) -> Answer:
    """Return a response with its body, or give that to the sink."""
    headers = {name.lower(): value for name, value in response.headers.items()}
    for name in (ROBOTS_HEADER, *USAGES):  # each line may be for another crawler
        if several := response.headers.getlist(name):
            headers[name] = "\n".join(several)
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit() and len(length) <= _LENGTH_DIGITS) or response.status < 200:
        raise FetchFailed(Reason.CONNECTION_FAILED, f"{target.url}: invalid Content-Length")
    body, setting = io.BytesIO(), "max_file_bytes" if sink else "max_bytes"
    stream = sink(target, response.status, headers) if sink else body if response.status in SUCCESSES else None
    if stream is None:
        return Answer(response.status, headers)
    limit: int = getattr(config, setting)
    too_large = FetchFailed(Reason.TOO_LARGE, f"{target.url}: more than http.{setting} = {limit} bytes")
    if stream.tell() + int(length) > limit:
        raise too_large
    while piece := response.read1(_PIECE_BYTES):
        if stream.tell() + len(piece) > limit:
            raise too_large
        stream.write(piece)
    plain = b"" if sink else _unpack(body.getvalue(), headers, target, most=limit + 1)
    if len(plain) > limit:
        raise too_large
    return Answer(response.status, headers, plain)


def _unpack(body: bytes, headers: Mapping[str, str], target: Target, *, most: int) -> bytes:
    """Return at most so many bytes of a body without its Content-Encoding, which must be the one that was asked for."""
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "x-gzip"):
        raise FetchFailed(Reason.HTTP_ERROR, f"{target.url}: expected gzip or no content encoding")
    unpacker = zlib.decompressobj(_GZIP_WINDOW)
    try:
        plain = unpacker.decompress(body, most)
    except zlib.error as error:
        raise FetchFailed(Reason.TRUNCATED, f"{target.url}: its gzip stream is broken", "error") from error
    if body and len(plain) < most and not unpacker.eof:
        raise FetchFailed(Reason.TRUNCATED, f"{target.url}: its gzip stream ends early")
    return plain


def _failed(error: Exception, target: Target) -> FetchFailed:
    """Return what a library's exception about an answer means."""
    while behind := error.__cause__ or next((each for each in error.args if isinstance(each, Exception)), None):
        error = cast(Exception, behind)  # urllib3 names what is behind an error as its cause, or among its arguments
    if isinstance(error, IncompleteRead):
        return FetchFailed(Reason.TRUNCATED, f"{target.url}: shorter than announced", "IncompleteRead")
    if isinstance(error, TimeoutError):
        return FetchFailed(Reason.TIMED_OUT, f"{target.url}: no complete answer in time", "TimeoutError")
    return _unreachable(error, target.host)


def _unreachable(error: Exception, host: str) -> FetchFailed:
    """Return what an exception about a connection means; one that is about this machine is raised."""
    if is_about_machine(error):
        raise error
    kind, cause = next(known for known in _CAUSES if isinstance(error, known[0]))
    return FetchFailed(Reason.CONNECTION_FAILED, f"{host}: {cause}", kind.__name__)


@lru_cache(maxsize=8)  # reading the authorities takes as long as many requests
def _tls_context(ca_bundle: str) -> ssl.SSLContext:
    """Return a verifying context that trusts the system's authorities, Mozilla's, and those of a file."""
    context = ssl.create_default_context()
    context.sslsocket_class = _TlsSocket
    context.load_verify_locations(certifi.where())
    if ca_bundle:
        context.load_verify_locations(ca_bundle)
    return context
