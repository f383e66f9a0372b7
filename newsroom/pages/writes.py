"""Which writes are taken: none that a page of another site made a visitor's browser send.

Browsers say where a request comes from: in `Sec-Fetch-Site`, over HTTPS and on loopback, and in `Origin` with every
POST of another site. A request with neither is no browser's, and has no cookie or login that a page could misuse. It is
the rule of `CrossOriginProtection` in Go's net/http; forms need no token.
"""

from collections.abc import AsyncIterator
from urllib.parse import urlsplit

from fastapi import HTTPException, Request
from starlette.datastructures import FormData

from newsroom.pages.limits import MAX_FIELD_BYTES, MAX_FIELDS, MAX_FILES

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


async def guard_writes(request: Request) -> AsyncIterator[None]:
    """Refuse a write that another site caused; a dependency of the whole application.

    Raises:
        HTTPException: 403.
    """
    try:
        if request.method not in SAFE and not _is_same_site(request):
            raise HTTPException(403, "the request comes from another site")
        yield
    finally:
        await request.close()  # the files of its form


async def form_of(request: Request) -> FormData:
    """Return a request's form, read once; within the limits of its fields.

    Raises:
        HTTPException: 400, where it has more.
    """
    return await request.form(max_files=MAX_FILES, max_fields=MAX_FIELDS, max_part_size=MAX_FIELD_BYTES)


def _is_same_site(request: Request) -> bool:
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host")
