"""How a recorded thing answers when it is asked for.

The vocabulary of the recording, which the server reads. A new way for an image or a page to
misbehave starts here, gets its answer in `image_host.py`, and is listed in `recording/README.md`.
Standard library only, since the server imports it.
"""

from enum import StrEnum


class Behaviour(StrEnum):
    """What the server does with a request for a recorded image or album."""

    SERVE = "serve"
    REMOVED = "removed"
    """A deleted image: a redirect to the host's placeholder picture."""
    REDIRECT = "redirect"
    """A permanent redirect to `location`."""
    NOT_FOUND = "not-found"
    GONE = "gone"
    OPTED_OUT = "opted-out"
    """The picture with `X-Robots-Tag: noai, noimageai`; an album with `<meta name="robots" content="noai">`."""
    RESERVED = "reserved"
    """An album with a header of TDMRep: `tdm-reservation: 1`."""
    BUSY_FIRST = "busy-first"
    """429 with `Retry-After: 1` to the first request, then the file."""
    UNAVAILABLE_FIRST = "unavailable-first"
    """503 to the first request, then the file."""
    SLOW = "slow"
    """The file, after half a second of silence."""
    TRICKLE = "trickle"
    """A byte every 0.2 s for as long as the client stays."""
    SHORT_BODY = "short-body"
    """Promises more bytes than it sends, then closes."""


class PageStyle(StrEnum):
    """Which generation of album page is served."""

    CONTAINERS = "containers"
    POST_DATA = "post-data"
