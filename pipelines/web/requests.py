"""What is asked for and what came of it: addresses, requests, responses, failures, and what a status is worth.

Two spellings of one address are one here (`parse_target`): a host's capitals, its letters beyond ASCII (UTS 46) and the
dot at its end, the scheme's own port, percent-encoding of what needs none, dots in the path, a fragment. Whether a host
may be reached at all is decided in `addresses.py`, when a connection is opened.

within a build      the same request is made again after a wait, where that may help (`may_help`)
between builds      what hosts refused holds for `REMEMBERED_S`; what failed for the moment is asked for by the next
"""

import random
import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from functools import lru_cache
from typing import BinaryIO
from urllib.parse import unquote, urljoin

import idna
from urllib3.util import parse_url

from schemas.failures import Reason, Rejection
from schemas.raw import RawEntry

SUCCESSES = frozenset({200, 203})
NOT_MODIFIED = 304
TOO_MANY_REQUESTS = 429
RETRIED_STATUSES = frozenset({TOO_MANY_REQUESTS, 500, 502, 503, 504})
LONGEST_WAIT_S = 120.0  # between two attempts; a longer `Retry-After` gives up
_RETRIED_REASONS = frozenset({Reason.CONNECTION_FAILED, Reason.TIMED_OUT, Reason.TRUNCATED})
_REASONS = {
    401: Reason.FORBIDDEN,
    403: Reason.FORBIDDEN,
    404: Reason.NOT_FOUND,
    410: Reason.NOT_FOUND,
    451: Reason.FORBIDDEN,
}
_HOUR_S, _DAY_S = 3_600.0, 86_400.0
# What is not named is not remembered: it failed for the moment, or the reason is found again without a request.
REMEMBERED_S = {
    Reason.ADDRESS_REFUSED: _HOUR_S,  # a name may lead to another address
    Reason.FORBIDDEN: _DAY_S,  # often a bad hour of a bot filter
    Reason.NOT_AN_IMAGE: _DAY_S,  # a page in place of a picture: often an outage
    Reason.INVALID_URL: 30 * _DAY_S,  # of a redirect
    Reason.NOT_FOUND: 30 * _DAY_S,
    Reason.REMOVED_IMAGE: 30 * _DAY_S,
    Reason.TOO_LARGE: 30 * _DAY_S,
    Reason.TOO_MANY_REDIRECTS: 30 * _DAY_S,
    Reason.ROBOTS_TAG: 30 * _DAY_S,
    Reason.ROBOTS_META: 30 * _DAY_S,
    Reason.TDM_RESERVED: _DAY_S,  # as long as the file of its host holds
    Reason.USAGE_DENIED: _DAY_S,
}
_DEFAULT_PORTS = {"http": 80, "https": 443}
_ESCAPE = re.compile("%([0-9a-fA-F]{2})")
_UNRESERVED = frozenset(f"{string.ascii_letters}{string.digits}-._~")  # RFC 3986 2.3
_HOST = re.compile(r"(https?://(?:[^/?#@]*@)?)([^/?#:@\[\]]+)", re.IGNORECASE)
_NOT_IN_HOSTS = re.compile(r"[\x00-\x20\x7f\"#%/:<>?@\[\\\]^`{|}]")  # WHATWG's forbidden host code points
_SHOWN = 200  # characters of an address in a message


class FetchFailed(Rejection):
    """A URL gave no usable answer. Nothing in the message changes from one try to the next.

    Attributes:
        status: HTTP status of the answer, if there was one.
        retry_after_s: how long the host asks to be left alone, if it does.
    """

    def __init__(
        self,
        reason: Reason,
        message: str,
        exception: str | None = None,
        status: int | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(reason, message, exception, status, retry_after_s)
        self.status, self.retry_after_s = status, retry_after_s


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


@lru_cache(maxsize=4096)  # a list of addresses is looked up, then keyed by host, then asked for
def parse_target(url: str) -> Target:
    """Return what an absolute http or https URL asks for.

    Raises:
        FetchFailed: INVALID_URL: it cannot be parsed, has another scheme, no host, or carries a password.
    """
    try:
        parsed = parse_url(_ESCAPE.sub(_plain, _ascii(url.strip())))
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


def spelling_of(url: str) -> str:
    """Return the one spelling of a URL; what cannot be asked for is left as it is."""
    try:
        return normalise(url)
    except FetchFailed:
        return url


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


def _ascii(url: str) -> str:
    """Return a URL with its host as UTS 46 maps it to ASCII, without a dot at its end.

    Raises:
        ValueError: it is no host name.
    """
    match = _HOST.match(url)
    if match is None:
        return url
    mapped = idna.uts46_remap(unquote(match[2]), std3_rules=False)
    host = ".".join(
        label if label.isascii() else f"xn--{label.encode('punycode').decode()}" for label in mapped.split(".")
    )
    if _NOT_IN_HOSTS.search(host):
        raise ValueError(f"{host!r} is no host name")
    return f"{match[1]}{host.removesuffix('.')}{url[match.end() :]}"


def _plain(escape: re.Match[str]) -> str:
    """Return the character of an escape that needs none, or the escape in capitals."""
    character = chr(int(escape[1], 16))
    return character if character in _UNRESERVED else escape[0].upper()


def _invalid(url: str, why: str, exception: str | None = None) -> FetchFailed:
    return FetchFailed(Reason.INVALID_URL, f"{url[:_SHOWN]!r}: {why}", exception)


class Kind(StrEnum):
    """What a request is for; it decides what counts as a usable answer."""

    PAGE = "page"
    IMAGE = "image"  # a redirect to `/removed.png` and a page in HTML are failures
    API = "api"  # under an agreement with its host: robots.txt is not asked
    FILE = "file"  # a file of a source, kept as one (`downloads.py`)
    ROBOTS = "robots"  # the client's own
    WELL_KNOWN = "well-known"  # likewise: other files in which a whole host says what it allows


@dataclass(frozen=True, slots=True)
class Request:
    """A request.

    Attributes:
        url: absolute, http or https.
        source: folder of the raw store.
        kind: what the answer is for.
        headers: further ones, such as credentials: sent to the URL's own origin alone, and never stored.
        max_age_s: something stored longer ago is asked for again; None: as long as the kind allows.
    """

    url: str
    source: str
    kind: Kind
    headers: Mapping[str, str] = field(default_factory=dict)
    max_age_s: float | None = None


@dataclass(frozen=True, slots=True)
class Response:
    """A usable answer.

    Attributes:
        entry: what the raw store knows of it: its address, status, time, digest and position.
        source: folder of the raw store.
        from_store: whether it was there already.
        body: where it is at hand; `Client.body` gives it in any case, and checked.
    """

    entry: RawEntry
    source: str
    from_store: bool
    body: bytes | None = field(default=None, repr=False, compare=False)

    @property
    def final_url(self) -> str:
        return self.entry.final_url or self.entry.url

    @property
    def fetched_at(self) -> str:
        return self.entry.fetched_at


Outcome = Response | FetchFailed


# Returns what the body of an answer is written to, None where it is not wanted.
Sink = Callable[[Target, int, Mapping[str, str]], BinaryIO | None]


@dataclass(slots=True)
class Task:
    """A request under way: where its next exchange goes, and what it has used up.

    Attributes:
        key: of the request in the raw store.
        home: where the request's own URL points.
        target: of the next exchange.
        budget_s: time left for the exchanges of this attempt.
        attempt: its number, from 1.
        ready_at: the next exchange starts no earlier.
        visited: addresses of this attempt, in order.
        opt_outs: opt-outs of this attempt's answers that are not honoured.
        stored: an answer that was too old, and may be still the right one.
        problem: what the last exchange failed with.
        headers: returns further ones for the next exchange, to whatever origin.
        sink: takes a body that is too large for memory.
    """

    request: Request
    key: str
    home: Target
    target: Target
    budget_s: float
    attempt: int = 1
    ready_at: float = 0.0
    visited: list[str] = field(default_factory=list)
    opt_outs: list[str] = field(default_factory=list)
    stored: RawEntry | None = None
    problem: FetchFailed | None = None
    headers: Callable[[], Mapping[str, str]] = dict
    sink: Sink | None = None


def reason_of_status(status: int) -> Reason:
    """Return the reason that a status which is no success stands for."""
    return _REASONS.get(status, Reason.HTTP_ERROR)


def may_help(reason: Reason, status: int | None) -> bool:
    """Return whether the same request may succeed when it is made again."""
    return reason in _RETRIED_REASONS or (reason is Reason.HTTP_ERROR and status in RETRIED_STATUSES)


def backoff_s(attempt: int, *, first_s: float) -> float:
    """Return the wait after an attempt (counted from 1): doubling, times a factor drawn from [0.5, 1.5)."""
    return min(LONGEST_WAIT_S, first_s * 2.0 ** min(attempt - 1, 32) * (0.5 + random.random()))


def retry_after_s(headers: Mapping[str, str], *, now: float) -> float | None:
    """Return the seconds a `Retry-After` header asks for (a number or a date, RFC 9110 10.2.3), None without one."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return max(0.0, (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now)


def utc_text(moment: float) -> str:
    """Return a POSIX time as ISO 8601 text in UTC."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def posix_time(text: str) -> float:
    """Return the POSIX time of what `utc_text` gave."""
    return datetime.fromisoformat(text).timestamp()
