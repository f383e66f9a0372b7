"""Following redirects by hand: each hop is asked for as any other request is, with its own checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pipelines.web.errors import FetchFailed
from pipelines.web.exchange import Answer
from pipelines.web.targets import Target, redirected
from schemas.failures import Reason

REDIRECTS = frozenset({301, 302, 303, 307, 308})

Hop = Callable[[Target, Mapping[str, str]], Answer]


def follow(target: Target, *, headers: Mapping[str, str], max_redirects: int, hop: Hop) -> tuple[Target, Answer]:
    """Return where a request ended and the answer there.

    Args:
        target: where it begins.
        headers: of the caller's own; sent to the origin of `target` alone, since they may be credentials.
        max_redirects: redirects followed.
        hop: makes one request.

    Raises:
        FetchFailed: TOO_MANY_REDIRECTS (or a loop), INVALID_URL, HTTP_ERROR (a redirect to nowhere), or what `hop`
            raises.
    """
    seen = {target.url}
    here = target
    while True:
        answer = hop(here, headers if here.origin == target.origin else {})
        if answer.status not in REDIRECTS:
            return here, answer
        location = answer.headers.get("location")
        if location is None:
            message = f"{here.url}: status {answer.status} without a Location"
            raise FetchFailed(Reason.HTTP_ERROR, message, status=answer.status)
        here = redirected(here, location)
        if here.url in seen:
            raise FetchFailed(Reason.TOO_MANY_REDIRECTS, f"{target.url}: redirects lead back to {here.url}")
        if len(seen) > max_redirects:
            message = f"{target.url}: more than {max_redirects} redirects"
            raise FetchFailed(Reason.TOO_MANY_REDIRECTS, message)
        seen.add(here.url)
