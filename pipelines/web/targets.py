"""What a URL asks for: its scheme, host and port, and the one spelling it is asked and stored under.

Only spelling is decided here. Whether the host may be reached at all is decided in `addresses.py`, when a connection
is opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urljoin

from urllib3.exceptions import LocationParseError
from urllib3.util import parse_url

from pipelines.web.errors import FetchFailed
from schemas.failures import Reason

_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Target:
    """Where a URL points.

    Attributes:
        url: percent-encoded, the host in lower-case ASCII, without a fragment.
        host: of the URL; an IPv6 address has no brackets.
    """

    url: str
    scheme: str
    host: str
    port: int

    @property
    def origin(self) -> str:
        """Return `scheme://host`, with the port where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        suffix = "" if self.port == _DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{suffix}"

    @property
    def path(self) -> str:
        """Return what the request line asks for: the path, and the query if there is one."""
        return self.url[self.url.index("/", len(self.scheme) + len("://")) :]


@lru_cache(maxsize=256)  # one request asks several times
def parse_target(url: str) -> Target:
    """Return what an absolute http or https URL asks for.

    Raises:
        FetchFailed: INVALID_URL: it cannot be parsed, has another scheme, no host, or carries a password.
    """
    try:
        parsed = parse_url(url.strip())
    except LocationParseError as error:
        raise FetchFailed(Reason.INVALID_URL, f"{url!r} cannot be parsed", exception=type(error).__name__) from error
    scheme, host = parsed.scheme, parsed.host
    if scheme not in _DEFAULT_PORTS:
        raise FetchFailed(Reason.INVALID_URL, f"{url!r}: expected http or https, found {scheme or 'no scheme'}")
    if not host:
        raise FetchFailed(Reason.INVALID_URL, f"{url!r} names no host")
    if parsed.auth is not None:
        raise FetchFailed(Reason.INVALID_URL, f"a URL at {host} carries a user name or password")
    port = parsed.port or _DEFAULT_PORTS[scheme]
    spelling = parsed._replace(fragment=None, path=parsed.path or "/").url
    return Target(spelling, scheme, host.strip("[]").lower(), port)


def redirected(target: Target, location: str) -> Target:
    """Return where a redirect from `target` leads; `location` may be relative (raises as `parse_target` does)."""
    try:
        joined = urljoin(target.url, location.strip())
    except ValueError as error:
        message = f"{target.url} redirects to {location!r}, which cannot be parsed"
        raise FetchFailed(Reason.INVALID_URL, message, exception=type(error).__name__) from error
    return parse_target(joined)
