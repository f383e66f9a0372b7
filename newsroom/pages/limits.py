"""How much a request may bring, how long it may take, how many are at work at once; and headers of answers.

    header     REQUEST_S to arrive (`training.listening.TimedProtocol`)       connections   MAX_CONNECTIONS
    body       MAX_BODY_BYTES, REQUEST_S to arrive                            requests      MAX_REQUESTS
    answer     ANSWER_S, waiting included                                     threads       AT_ONCE
    search     SEARCH_S of it, waiting included (`searches.py`)               searches      PagesSettings.processes

What is beyond is answered in one line: 408, 413, or 503 with `Retry-After`. A thread cannot be ended: one that is late
works on behind an answer that was given, and keeps its place until it is done. A search is ended.
"""

import asyncio
import os
from dataclasses import dataclass, field

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from training.listening import RequestError, read_body

MAX_BODY_BYTES = 16 << 20  # a picture to search by, and a text
MAX_FIELD_BYTES = 1 << 20
MAX_FIELDS, MAX_FILES = 200, 1
MAX_CONNECTIONS = 512  # a browser opens six
AT_ONCE = 2 * (os.cpu_count() or 1)
MAX_REQUESTS = 256  # at work or waiting
MAX_BODIES = 16  # that arrive at once
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
class Limits:
    """ASGI middleware: bounds a request and puts `HEADERS` on its answer, those that it does not have."""

    app: ASGIApp
    bodies: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_BODIES))
    requests: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        has_begun = is_over = False

        async def answer(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        async def answer_in_time(message: Message) -> None:
            if not is_over:
                await answer(message)

        try:
            await self._within(scope, receive, answer_in_time)
        except (RequestError, TimeoutError) as problem:
            is_over = True
            if has_begun:  # the connection is cut: half an answer must not look whole
                raise
            status = problem.status if isinstance(problem, RequestError) else 503
            line = str(problem) or f"no answer within {ANSWER_S:.0f} s"
            headers = {"retry-after": str(RETRY_S)} if status == 503 else {}
            await Response(f"{line}\n", status, headers, media_type="text/plain")(scope, receive, answer)

    async def _within(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.requests >= MAX_REQUESTS:
            raise RequestError(503, f"{MAX_REQUESTS} requests are at work or wait")
        self.requests += 1
        scope.setdefault("state", {})["until"] = asyncio.get_running_loop().time() + SEARCH_S
        work = asyncio.ensure_future(self._work(scope, receive, send))
        work.add_done_callback(self._done)
        done, _ = await asyncio.wait({work}, timeout=ANSWER_S)  # which leaves it at work
        if not done:
            raise TimeoutError
        work.result()

    async def _work(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self.bodies:  # whole before anything is done: a slow sender delays no other
            body = await read_body(scope, receive, most_bytes=MAX_BODY_BYTES)
        await self.app(scope, _again(body, receive), send)

    def _done(self, work: asyncio.Future[None]) -> None:
        self.requests -= 1
        if not work.cancelled():
            work.exception()  # looked at: of a request that is over, nobody else does


def _again(body: bytes, receive: Receive) -> Receive:
    """Return what gives a body that was read, and then whatever else comes."""
    given = False

    async def next_message() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return next_message
