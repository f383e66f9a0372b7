"""What Prometheus reads of a server: requests by route and status, their time, and what the process takes."""

import time

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import generate_latest
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

METRICS = "/metrics"
SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30)


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


def exposition(registry: CollectorRegistry) -> Response:
    """Return the numbers of a registry in Prometheus' text format."""
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
