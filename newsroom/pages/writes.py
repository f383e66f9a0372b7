"""Which writes are taken: none that a page of another site made a visitor's browser send. Forms need no token."""

from collections.abc import AsyncIterator

from fastapi import HTTPException, Request
from starlette.datastructures import FormData

from newsroom.pages.limits import MAX_FIELD_BYTES, MAX_FIELDS, MAX_FILES
from training.listening import is_same_site

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


async def guard_writes(request: Request) -> AsyncIterator[None]:
    """Refuse a write that another site caused; a dependency of the whole application.

    Raises:
        HTTPException: 403.
    """
    try:
        if request.method not in SAFE and not is_same_site(request.headers):
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
