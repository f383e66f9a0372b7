"""Who is answered: anyone on this machine, a visitor with the token, or one that a reverse proxy names.

On loopback there is no login, and only requests for a loopback name are answered: a page of another site whose name
leads here (DNS rebinding) is refused. A token is typed once on a page and then stands for in a cookie, which holds a
signature and not the token; programs send it as `Authorization: Bearer`. A proxy's header is believed as it is: let
nothing but the proxy reach the port.
"""

import hashlib
import hmac
import time
from dataclasses import dataclass

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from orchestration.pages.rendering import own_path, page
from orchestration.pages.settings import PagesSettings
from orchestration.pages.state import Shared
from orchestration.pages.writes import cookie, form_of, is_secure

SESSION = "multilink-session"
SESSION_S = 12 * 3600
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
OPEN_PATHS = ("/static/", "/enter", "/health")  # without a login
router = APIRouter()


@dataclass(frozen=True, slots=True)
class Access:
    """ASGI middleware: lets a request through, names its visitor in `request.state.user`, or refuses it."""

    app: ASGIApp
    settings: PagesSettings
    secret: bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        request = Request(scope)
        state = scope.setdefault("state", {})
        state |= {"user": "", "is_bearer": False}
        if refusal := self._refusal(request):
            return await refusal(scope, receive, send)
        return await self.app(scope, receive, send)

    def _refusal(self, request: Request) -> Response | None:
        """Return the answer to a visitor who may not come in; None to one who may."""
        given = self.settings
        if given.is_local and _name(request.headers.get("host", "")) not in LOOPBACK_NAMES:
            return Response("expected the name of this machine's loopback as Host\n", 421, media_type="text/plain")
        if request.url.path.startswith(OPEN_PATHS):
            return None
        if given.user_header:
            request.state.user = request.headers.get(given.user_header, "").strip()
            return None if request.state.user else _unknown()
        if not given.token:
            return None
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            request.state.is_bearer = True
            return None if _equal(token.strip(), given.token) else _unknown()
        if is_signed(request.cookies.get(SESSION, ""), self.secret, given.token):
            return None
        if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
            target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return RedirectResponse(str(request.url_for("enter").include_query_params(then=target)), 303)
        return _unknown()


@router.get("/enter", name="enter")
def enter(request: Request, then: str = "/") -> Response:
    """Ask for the token."""
    return page(request, "enter.html.j2", then=own_path(then), is_wrong=False)


@router.post("/enter")
async def entered(request: Request, shared: Shared) -> Response:
    """Check a token and remember that it was right."""
    form = await form_of(request)
    then, token = own_path(str(form.get("then", "/"))), str(form.get("token", ""))
    if not _equal(token, shared.settings.token):
        return page(request, "enter.html.j2", status=403, then=then, is_wrong=True)
    answer = RedirectResponse(then, 303)
    cookie(answer, SESSION, signed(shared.secret, shared.settings.token), SESSION_S, is_secure=is_secure(request))
    return answer


def signed(secret: bytes, token: str, now: float | None = None) -> str:
    """Return the signed time until which a browser need not show the token again."""
    until = str(int((time.time() if now is None else now) + SESSION_S))
    return f"{until}.{_signature(secret, token, until)}"


def is_signed(value: str, secret: bytes, token: str, now: float | None = None) -> bool:
    """Return whether a value is of `signed`, for this token, and has not run out."""
    until, _, signature = value.partition(".")
    is_own = _equal(signature, _signature(secret, token, until))
    return is_own and until.isdecimal() and int(until) > (time.time() if now is None else now)


def _signature(secret: bytes, token: str, until: str) -> str:
    return hmac.new(secret, f"session\n{token}\n{until}".encode(), hashlib.sha256).hexdigest()


def _equal(first: str, second: str) -> bool:
    return hmac.compare_digest(first.encode(), second.encode())


def _name(host: str) -> str:
    """Return a Host header without its port."""
    return host.lower() if host.endswith("]") else host.lower().rpartition(":")[0] or host.lower()


def _unknown() -> Response:
    headers = {"WWW-Authenticate": "Bearer"}
    return Response(
        "expected a login: a token, or the user's name from the proxy\n", 401, headers=headers, media_type="text/plain"
    )
