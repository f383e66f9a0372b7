"""How much a request may bring, how long it may take, how many are at work at once; and headers of answers.

    header     REQUEST_S to arrive (`training.listening.TimedProtocol`)       connections   MAX_CONNECTIONS
    body       MAX_FORM_BYTES, MAX_BODY_BYTES with a picture (by FastAPI)     requests      MAX_REQUESTS, MAX_OF_CLIENT
    answer     ANSWER_S, the arrival of the body and waiting included         threads       AT_ONCE, MAX_SPARE
    search     SEARCH_S of it, waiting included (`searches.py`)

What is beyond is answered in one line: 413, or 503 with `Retry-After`. A request takes memory for the bytes that have
come, and those with a body are counted apart, so a slow sender delays no other. A body is read after access is granted.
A thread cannot be ended: in the place of one that is late another begins, MAX_SPARE at most, and `/health` says when
these are used up. A search is ended.
"""

import asyncio
import os
from collections import Counter
from dataclasses import dataclass, field

from anyio import CancelScope
from anyio.to_thread import current_default_thread_limiter
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from training.listening import RequestError, has_body

MAX_BODY_BYTES = 16 << 20  # a picture to search by: beyond a megabyte it is on the disk
MAX_FORM_BYTES = 2 << 20  # texts
MAX_CONNECTIONS = 512  # a browser opens six
AT_ONCE = 2 * (os.cpu_count() or 1)
MAX_SPARE = 16  # threads beside those whose answers are late
MAX_REQUESTS = 256  # at work or waiting
MAX_OF_CLIENT = 64  # of these; a browser opens six connections
MAX_LOGIN_BYTES = 16 << 10
ANSWER_S = 60.0
SEARCH_S = 30.0
RETRY_S = 5
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "private, no-cache",
}


@dataclass(slots=True)
class Work:
    """What requests of one application have in use.

    Attributes:
        requests: by client, at work or waiting: without a body, with one.
        late: threads that work behind an answer that was given.
    """

    requests: tuple[Counter[str], Counter[str]] = field(default_factory=lambda: (Counter(), Counter()))
    late: int = 0

    async def health(self) -> Response:
        """Answer whether a page can be made: not where every spare thread hangs."""
        if self.late < MAX_SPARE:
            return Response("ok\n", media_type="text/plain")
        return Response(f"{self.late} answers hang\n", 503, media_type="text/plain")

    def give_place(self, work: asyncio.Future[None]) -> None:
        """Let one more thread begin until late work is done, unless it is or MAX_SPARE have."""
        if work.done() or self.late >= MAX_SPARE:
            return
        self._add_thread(1)
        work.add_done_callback(lambda _: self._add_thread(-1))

    def _add_thread(self, number: int) -> None:
        self.late += number
        current_default_thread_limiter().total_tokens += number


@dataclass(slots=True)
class Limits:
    """ASGI middleware: bounds a request and puts `HEADERS` on its answer, those that it does not have."""

    app: ASGIApp
    work: Work = field(default_factory=Work)
    user_header: str = ""  # that names a proxy's visitor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        has_begun = False

        async def answer(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._within(scope, receive, answer)
        except RequestError as problem:
            if has_begun:  # the connection is cut: half an answer must not look whole
                raise
            refusal = Response(f"{problem}\n", 503, {"retry-after": str(RETRY_S)}, media_type="text/plain")
            await refusal(scope, receive, answer)

    async def _within(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = (scope.get("client") or ("",))[0]
        client = Headers(scope=scope).get(self.user_header, host) if self.user_header else host
        requests = self.work.requests[has_body(scope)]
        if requests.total() >= MAX_REQUESTS or requests[client] >= MAX_OF_CLIENT:
            raise RequestError(503, f"{requests.total()} requests are at work or wait")
        loop, bounds = asyncio.get_running_loop(), CancelScope()
        requests[client] += 1
        scope.setdefault("state", {})["until"] = loop.time() + SEARCH_S

        async def work() -> None:
            with bounds:
                await self.app(scope, receive, send)

        def done(task: asyncio.Future[None]) -> None:
            requests[client] -= 1
            if not requests[client]:
                del requests[client]
            _ = task.cancelled() or task.exception()  # looked at: of a request that is over, nobody else does

        task = asyncio.ensure_future(work())
        task.add_done_callback(done)
        finished, _ = await asyncio.wait({task}, timeout=ANSWER_S)
        if not finished:
            bounds.cancel()  # what waits for a place leaves; a thread works on, and the server refuses its late answer
            loop.call_later(0.1, self.work.give_place, task)
            raise RequestError(503, f"no answer within {ANSWER_S:.0f} s")
        task.result()
