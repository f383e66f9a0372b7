"""What a write must carry, so that no other site can make a visitor's browser write: a token only our own pages know.

A browser gets a random number as a cookie; pages hold its signature, in each form and for htmx in a header. A write is
taken where both fit and where the browser does not say that it came from another site. A program that shows
`Authorization: Bearer` needs neither: nothing sends that header by itself.
"""

import hashlib
import hmac
import secrets
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

from fastapi import HTTPException, Request
from fastapi.responses import Response
from starlette.datastructures import FormData

from orchestration.pages.limits import MAX_FIELD_BYTES, MAX_FIELDS, MAX_FILES

COOKIE, FIELD, HEADER = "multilink-form", "csrf", "x-csrf-token"
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
KEPT_S = 30 * 24 * 3600


async def guard_writes(request: Request) -> AsyncIterator[None]:
    """Refuse a write that another site may have caused; a dependency of the whole application.

    Raises:
        HTTPException: 403; or 400 where a form has more than it may.
    """
    try:
        await _check(request)
        yield
    finally:
        await request.close()  # the files of its form


async def _check(request: Request) -> None:
    if request.method in SAFE or getattr(request.state, "is_bearer", False):
        return
    if not _is_same_site(request):
        raise HTTPException(403, "the request comes from another site")
    given = request.headers.get(HEADER) or str((await form_of(request)).get(FIELD, ""))
    number = request.cookies.get(COOKIE, "")
    if not number or not hmac.compare_digest(given.encode(), token_of(number, request.app.state.pages.secret).encode()):
        raise HTTPException(403, "the form is out of date: open the page again and repeat what you did")


async def form_of(request: Request) -> FormData:
    """Return a request's form, read once; within the limits of its fields.

    Raises:
        HTTPException: 400, where it has more.
    """
    return await request.form(max_files=MAX_FILES, max_fields=MAX_FIELDS, max_part_size=MAX_FIELD_BYTES)


def number_of(request: Request) -> str:
    """Return the random number of a visitor's browser: that of its cookie, or a new one."""
    if not hasattr(request.state, "form_number"):
        request.state.form_number = request.cookies.get(COOKIE) or secrets.token_urlsafe(24)
    return str(request.state.form_number)


def token_of(number: str, secret: bytes) -> str:
    """Return what a page of a browser with this number holds."""
    return hmac.new(secret, f"form\n{number}".encode(), hashlib.sha256).hexdigest()


def cookie(answer: Response, name: str, value: str, seconds: int, *, is_secure: bool) -> None:
    """Set a cookie that only these pages get, and no script."""
    answer.set_cookie(name, value, max_age=seconds, httponly=True, samesite="strict", secure=is_secure, path="/")


def is_secure(request: Request) -> bool:
    """Return whether the visitor's side of the connection is encrypted, as far as it is said."""
    return request.headers.get("x-forwarded-proto", request.url.scheme) == "https"


def _is_same_site(request: Request) -> bool:
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host")
