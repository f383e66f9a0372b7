"""How much a request may bring, how long it may take, how many are answered at once; and headers of answers.

    header     REQUEST_S to arrive (`training.listening.TimedProtocol`)       connections   MAX_CONNECTIONS
    body       MAX_BODY_BYTES, REQUEST_S to arrive                            answering     AT_ONCE, MAX_WAITING wait
    answer     ANSWER_S, waiting included

What is beyond is answered in one line: 408, 413, or 503 with `Retry-After`.
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
MAX_WAITING = 256
MAX_BODIES = 16  # that arrive at once
ANSWER_S = 60.0
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
    at_once: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    bodies: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_BODIES))
    waiting: int = 0

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
        except (RequestError, TimeoutError) as problem:
            if has_begun:  # the connection is cut: half an answer must not look whole
                raise
            status = problem.status if isinstance(problem, RequestError) else 503
            line = str(problem) or f"no answer within {ANSWER_S:.0f} s"
            headers = {"retry-after": str(RETRY_S)} if status == 503 else {}
            await Response(f"{line}\n", status, headers, media_type="text/plain")(scope, receive, answer)

    async def _within(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.waiting >= MAX_WAITING:
            raise RequestError(503, f"{MAX_WAITING} requests wait already")
        async with asyncio.timeout(ANSWER_S):
            self.waiting += 1
            try:
                async with self.bodies:  # whole before it takes a place: a slow sender delays no other
                    body = await read_body(scope, receive, most_bytes=MAX_BODY_BYTES)
                await self.at_once.acquire()
            finally:
                self.waiting -= 1
            try:
                await self.app(scope, _again(body, receive), send)
            finally:
                self.at_once.release()


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
