"""What every server here needs: a socket to listen on, deadlines and a bound for what a request brings, and numbers.

Prometheus reads requests by route and status, their time, and what the process takes.
"""

import asyncio
import ipaddress
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import generate_latest
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from schemas.messages import UsageError

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
REQUEST_S = 30.0  # in which a request's header, and then its body, must arrive
METRICS = "/metrics"
SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30)


class RequestError(UsageError):
    """A request that is refused: its HTTP status and one line."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Address:
    """A bound socket and its URL."""

    bound: socket.socket
    url: str


class TimedProtocol(H11Protocol):
    """HTTP/1.1 that gives a connection up whose request header does not arrive whole within `REQUEST_S`."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def _watch(self) -> None:
        is_waiting = self.cycle is None or self.cycle.response_complete
        if is_waiting and self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_S, self.timeout_keep_alive_handler)
        elif not is_waiting and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def bind(host: str, port: int) -> Address:
    """Return a socket that listens, by IPv4 or IPv6 as the host says; with port 0, on one that is free.

    Raises:
        UsageError: the address is another's, or not this machine's.
    """
    try:
        bound = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as problem:
        raise UsageError(f"--host {host} --port {port}: {problem.strerror or problem}") from problem
    name = f"[{host}]" if ":" in host else host
    return Address(bound, f"http://{name}:{bound.getsockname()[1]}")


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host that is listened on."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_for_loopback(headers: Headers) -> bool:
    """Return whether a request is for this machine's loopback by name: a page of another site may lead here by DNS."""
    host = headers.get("host", "").lower()
    return (host if host.endswith("]") else host.rpartition(":")[0] or host) in LOOPBACK_NAMES


def is_same_site(headers: Headers) -> bool:
    """Return whether no page of another site made a browser send a request.

    Browsers name where a request comes from: in `Sec-Fetch-Site`, over HTTPS and on loopback, and in `Origin` with
    every POST of another site. A request with neither is no browser's. It is the rule of `CrossOriginProtection` in
    Go's net/http.
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc == headers.get("host")


def has_body(scope: Scope) -> bool:
    """Return whether a request says that it brings a body."""
    headers = dict(scope["headers"])
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"


async def read_body(receive: Receive, *, most_bytes: int, take: Callable[[int], None] = lambda count: None) -> bytes:
    """Return the body of a request that has one; it has to arrive within `REQUEST_S`.

    Args:
        receive: gives what has come.
        most_bytes: that are read.
        take: hears how many bytes came, and may refuse them.

    Raises:
        RequestError: 413, it is larger than `most_bytes`; 408, it did not arrive in time.
    """
    body, is_more = bytearray(), True
    try:
        async with asyncio.timeout(REQUEST_S):
            while is_more:
                message = await receive()
                part = message.get("body", b"")
                take(len(part))
                body += part
                if len(body) > most_bytes:
                    raise RequestError(413, f"expected a body of at most {most_bytes} bytes")
                is_more = message.get("more_body", False)
    except TimeoutError as problem:
        raise RequestError(408, f"expected the whole body within {REQUEST_S:.0f} s") from problem
    return bytes(body)


class Metered:
    """ASGI middleware that counts requests.

    Args:
        app: answers them.
        registry: gets the numbers; one for each application.
    """

    def __init__(self, app: ASGIApp, registry: CollectorRegistry) -> None:
        self.app = app
        name, labels = "multilink_http_requests", ("route", "status")
        self.requests = Counter(name, "Requests that were answered.", labels, registry=registry)
        self.open = Gauge(f"{name}_open", "Requests that are being answered.", registry=registry)
        name = "multilink_http_request_seconds"
        self.seconds = Histogram(
            name, "From a request's header to its answer.", ("route",), buckets=SECONDS, registry=registry
        )
        ProcessCollector(registry=registry)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, and count it by the pattern of its route: an address of no route is "other"."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        status = 500

        async def noted(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        start = time.perf_counter()
        try:
            with self.open.track_inprogress():
                await self.app(scope, receive, noted)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self.requests.labels(route, str(status)).inc()
            self.seconds.labels(route).observe(time.perf_counter() - start)


def exposition(*registries: CollectorRegistry) -> Response:
    """Return the numbers of registries in Prometheus' text format."""
    return Response(b"".join(map(generate_latest, registries)), media_type=CONTENT_TYPE_LATEST)
