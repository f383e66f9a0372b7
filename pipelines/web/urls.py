"""What a URL asks for: its scheme, host and port, and the one spelling it is asked, stored and compared under.

Two spellings of one address are one here: capitals of the host, the scheme's own port, percent-encoding of what needs
none, dots in the path, a fragment. Whether the host may be reached at all is decided in `addresses.py`, when a
connection is opened.
"""

from __future__ import annotations

import re
import string
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urljoin

from urllib3.util import parse_url

from pipelines.web.errors import FetchFailed
from schemas.failures import Reason

_DEFAULT_PORTS = {"http": 80, "https": 443}
_ESCAPE = re.compile("%([0-9a-fA-F]{2})")
_UNRESERVED = frozenset(f"{string.ascii_letters}{string.digits}-._~")  # RFC 3986 2.3
_SHOWN = 200  # characters of an address in a message


@dataclass(frozen=True, slots=True)
class Target:
    """Where a URL points.

    Attributes:
        url: percent-encoded, the host in lower-case ASCII, without a fragment.
        host: of the URL; an IPv6 address has no brackets.
        origin: `scheme://host`, with the port where it is not the scheme's own.
    """

    url: str
    scheme: str
    host: str
    port: int
    origin: str


@lru_cache(maxsize=256)  # one request asks several times
def parse_target(url: str) -> Target:
    """Return what an absolute http or https URL asks for.

    Raises:
        FetchFailed: INVALID_URL: it cannot be parsed, has another scheme, no host, or carries a password.
    """
    try:
        parsed = parse_url(_ESCAPE.sub(_plain, url.strip()))
    except ValueError as error:  # urllib3's own is among them
        raise _invalid(url, "cannot be parsed", type(error).__name__) from error
    scheme, host = parsed.scheme, parsed.host
    if scheme not in _DEFAULT_PORTS:
        raise _invalid(url, f"expected http or https, found {scheme or 'no scheme'}")
    if not host:
        raise _invalid(url, "names no host")
    if parsed.auth is not None:
        raise _invalid(host, "a URL there carries a user name or password")
    port = parsed.port or _DEFAULT_PORTS[scheme]
    suffix = "" if port == _DEFAULT_PORTS[scheme] else f":{port}"
    origin = f"{scheme}://{host.lower()}{suffix}"
    path = f"{parsed.path or '/'}{'' if parsed.query is None else f'?{parsed.query}'}"
    return Target(f"{origin}{path}", scheme, host.strip("[]").lower(), port, origin)


def normalise(url: str) -> str:
    """Return the one spelling of a URL (raises as `parse_target` does)."""
    return parse_target(url).url


def host_of(url: str) -> str | None:
    """Return the host of a URL, None where it is no URL that can be asked for."""
    try:
        return parse_target(url).host
    except FetchFailed:
        return None


def redirected(target: Target, location: str) -> Target:
    """Return where a redirect from `target` leads; `location` may be relative (raises as `parse_target` does).

    Its bytes beyond ASCII are escaped as they came.
    """
    escaped = "".join(c if c.isascii() else f"%{ord(c) & 0xFF:02X}" for c in location.strip())
    try:
        joined = urljoin(target.url, escaped)
    except ValueError as error:
        raise _invalid(target.url, "redirects to what cannot be parsed", type(error).__name__) from error
    return parse_target(joined)


def _plain(escape: re.Match[str]) -> str:
    """Return the character of an escape that needs none, or the escape in capitals."""
    character = chr(int(escape[1], 16))
    return character if character in _UNRESERVED else escape[0].upper()


def _invalid(url: str, why: str, exception: str | None = None) -> FetchFailed:
    return FetchFailed(Reason.INVALID_URL, f"{url[:_SHOWN]!r}: {why}", exception)
