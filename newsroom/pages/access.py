"""Who is answered: anyone on this machine, a visitor with the token, or one that a reverse proxy names.

On loopback there is no login, and only requests for a loopback name are answered: a page of another site whose name
leads here (DNS rebinding) is refused. A token is typed once on a page and then stands for in a cookie, which is sealed
and does not contain it; programs send it as `Authorization: Bearer`. A proxy's header is believed as it is: let
nothing but the proxy reach the port. A write is refused where a page of another site made a browser send it: forms need
no token.

What these pages hand to a browser and take back unchanged is sealed: a Fernet token (AES-128 and HMAC-SHA256, with the
time it was made). Its key follows from the installation's secret and a purpose, so that a token of one purpose is
nothing for another.
"""

import asyncio
import base64
import hashlib
import hmac
import time
from dataclasses import dataclass
from urllib.parse import urlencode

from cryptography.fernet import Fernet, InvalidToken
from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from newsroom.decisions.records import MAX_WHO
from newsroom.pages.limits import MAX_LOGIN_BYTES
from newsroom.pages.rendering import address, cookie, inner_path, own_path, page
from newsroom.pages.state import Field, PagesSettings, Shared
from schemas.metadata import plain_text
from training.listening import is_for_loopback, is_same_site

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
SESSION = "multilink-session"
SESSION_S = 12 * 3600
GUESS_S = 0.5  # after a wrong token
OPEN_PATHS = ("/static/", "/enter", "/health")  # without a login
router = APIRouter()


def guard_writes(request: Request) -> None:
    """Refuse a write that another site caused; a dependency of the whole application.

    Raises:
        HTTPException: 403.
    """
    if request.method not in SAFE and not is_same_site(request.headers):
        raise HTTPException(403, "the request comes from another site")


@dataclass(frozen=True, slots=True)
class Seal:
    """Seals of one purpose.

    Attributes:
        secret: of the installation.
        purpose: of what is sealed.
        lifetime_s: how long it is taken back.
    """

    secret: bytes
    purpose: str
    lifetime_s: int

    def sealed(self, data: bytes = b"", *, now: float | None = None) -> str:
        """Return a token that holds some bytes."""
        return self._fernet.encrypt_at_time(data, int(now or time.time())).decode()

    def opened(self, token: str, *, now: float | None = None) -> bytes | None:
        """Return the bytes of a token; None where it was made by somebody else, or too long ago."""
        try:
            return self._fernet.decrypt_at_time(token.encode(), self.lifetime_s, int(now or time.time()))
        except InvalidToken:
            return None

    @property
    def _fernet(self) -> Fernet:
        return Fernet(base64.urlsafe_b64encode(hashlib.sha256(self.purpose.encode() + b"\n" + self.secret).digest()))


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
        request.state.user = ""
        return await (self._refusal(request) or self.app)(scope, receive, send)

    def _refusal(self, request: Request) -> Response | None:
        """Return the answer to a visitor who may not come in; None to one who may."""
        given = self.settings
        if inner_path(request).startswith(OPEN_PATHS) and not given.is_open:
            return None
        if given.user_header:
            request.state.user = plain_text(request.headers.get(given.user_header, ""), MAX_WHO) or ""
            return None if request.state.user else _unknown()
        if given.is_open:
            return (
                None
                if is_for_loopback(request.headers)
                else _plain("expected the name of this machine's loopback as Host", 421)
            )
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return None if _is_token(token.strip(), given.token) else _unknown()
        if session(self.secret, given.token).opened(request.cookies.get(SESSION, "")) is not None:
            return None
        if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
            return RedirectResponse(f"{address(request, '/enter')}?{urlencode({'then': address(request)})}", 303)
        return _unknown()


@router.get("/enter", name="enter")
def enter(request: Request, then: str = "") -> Response:
    """Ask for the token."""
    return page(request, "enter.html.j2", then=own_path(request, then), is_wrong=False)


@router.post("/enter", max_body_size=MAX_LOGIN_BYTES)
async def entered(request: Request, shared: Shared, then: Field = "", token: Field = "") -> Response:
    """Check a token and remember that it was right."""
    then = own_path(request, then)
    if not _is_token(token, shared.settings.token):
        await asyncio.sleep(GUESS_S)
        return page(request, "enter.html.j2", status=403, then=then, is_wrong=True)
    answer = RedirectResponse(then, 303)
    cookie(request, answer, SESSION, session(shared.secret, shared.settings.token).sealed(), SESSION_S)
    return answer


def session(secret: bytes, token: str) -> Seal:
    """Return the seal of sessions that were begun with a token."""
    return Seal(secret, f"session {token}", SESSION_S)


def _is_token(given: str, token: str) -> bool:
    return bool(token) and hmac.compare_digest(given.encode(), token.encode())


def _unknown() -> Response:
    answer = _plain("expected a login: a token, or the user's name from the proxy", 401)
    answer.headers["WWW-Authenticate"] = "Bearer"
    return answer


def _plain(line: str, status: int) -> Response:
    return Response(f"{line}\n", status, media_type="text/plain")
