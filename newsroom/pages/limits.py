"""How much a request may bring, how long it may take, how many are at work at once; and headers of answers.

    header     REQUEST_S to arrive (`training.listening.TimedProtocol`)       connections   MAX_CONNECTIONS
    body       MAX_BODY_BYTES, REQUEST_S to arrive                            bodies        MAX_HELD_BYTES together
    answer     ANSWER_S, waiting included                                     requests      MAX_REQUESTS, MAX_OF_CLIENT
    search     SEARCH_S of it, waiting included (`searches.py`)               threads       AT_ONCE, MAX_SPARE

What is beyond is answered in one line: 408, 413, or 503 with `Retry-After`. A request takes memory for the bytes that
have come, so a slow sender delays no other. A body is read after access is granted. A thread cannot be ended: in the
place of one that is late another begins, MAX_SPARE at most, and `/health` says when these are used up. A search is
ended.
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

from training.listening import RequestError, has_body, read_body

MAX_BODY_BYTES = 16 << 20  # a picture to search by, and a text
MAX_CONNECTIONS = 512  # a browser opens six
AT_ONCE = 2 * (os.cpu_count() or 1)
MAX_SPARE = 16  # threads beside those whose answers are late
MAX_REQUESTS = 256  # at work or waiting
MAX_OF_CLIENT = 64  # of these; a browser opens six connections
MAX_HELD_BYTES = 512 << 20  # of the bodies of all requests
MAX_LOGIN_BYTES = 16 << 10  # of a visitor who is not known yet
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
        held: bytes of bodies.
    """

    requests: tuple[Counter[str], Counter[str]] = field(default_factory=lambda: (Counter(), Counter()))
    late: int = 0
    held: int = 0

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
        client, requests = self._client(scope), self.work.requests[has_body(scope)]
        if requests.total() >= MAX_REQUESTS or requests[client] >= MAX_OF_CLIENT:
            raise RequestError(503, f"{requests.total()} requests are at work or wait")
        loop, bounds = asyncio.get_running_loop(), CancelScope()
        requests[client] += 1
        scope.setdefault("state", {})["until"] = loop.time() + SEARCH_S
        work = asyncio.ensure_future(self._answer(scope, receive, send, bounds))
        work.add_done_callback(lambda done: _done(requests, client, done))
        done, _ = await asyncio.wait({work}, timeout=ANSWER_S)
        if not done:
            bounds.cancel()  # what waits for a place leaves; a thread works on
            loop.call_later(0.1, self.work.give_place, work)
            raise TimeoutError
        work.result()

    def _client(self, scope: Scope) -> str:
        host = (scope.get("client") or ("",))[0]
        return Headers(scope=scope).get(self.user_header, host) if self.user_header else host

    async def _answer(self, scope: Scope, receive: Receive, send: Send, bounds: CancelScope) -> None:
        with bounds:
            await self.app(scope, receive, send)


@dataclass(slots=True)
class Bodies:
    """ASGI middleware: reads the body of a request whole, before anything is done with it."""

    app: ASGIApp
    work: Work

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or not has_body(scope):
            return await self.app(scope, receive, send)
        held = 0

        def take(count: int) -> None:
            nonlocal held
            held += count
            self.work.held += count
            if self.work.held > MAX_HELD_BYTES:
                raise RequestError(503, "other requests bring too much at this time")

        try:
            most = MAX_BODY_BYTES if scope["state"].get("is_known") else MAX_LOGIN_BYTES
            body = await read_body(receive, most_bytes=most, take=take)
            return await self.app(scope, _again(body, receive), send)
        finally:
            self.work.held -= held


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


def _done(requests: Counter[str], client: str, work: asyncio.Future[None]) -> None:
    requests[client] -= 1
    if not requests[client]:
        del requests[client]
    if not work.cancelled():
        work.exception()  # looked at: of a request that is over, nobody else does
