"""Addresses of imgur albums, in the spellings that posts have.

    imgur.com/a/ID               an album
    imgur.com/gallery/ID         an album or a single picture that was made public; likewise /t/TAG/ID, /topic/TOPIC/ID,
                                 /r/SUB/ID

Hosts are imgur.com and imgur.io, their www., m. and i.; capitals, a title before the id (`some-title-ID`), a missing
scheme, a query, a fragment, what follows after a slash, and punctuation at the end change nothing. A comma between ids
lists pictures that have no captions, which is no album.
"""

import html
import re
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

_SCHEME = re.compile(r"(?:https?:)?(?://)?", re.IGNORECASE)
_HOST = re.compile(r"(?:(?:www|[im])\.)?imgur\.(?:com|io)")
_NAME = re.compile(r"[^&?#=;|<>\"'\s,+.()\[\]{}*\\!:]*")  # an id, perhaps after a title
_LIST = re.compile(r"[,+.][A-Za-z0-9]")  # of ids, or the ending of a file
_ID = re.compile("[A-Za-z0-9]+")
_ALBUM = "a"
_SEGMENTS_BEFORE = {_ALBUM: 1, "gallery": 1, "t": 2, "topic": 2, "r": 2}
_MIN_ID = 5  # letters and digits; shorter words after /gallery/ and /r/SUB/ are "new", "top", "hot"


class Album(NamedTuple):
    """An album that an address names; `is_sure` is false where the same address may lead to a single picture."""

    id: str
    is_sure: bool


def find_album(url: str) -> Album | None:
    """Return the album that a URL points at, None for any other URL."""
    text = html.unescape(url).strip()
    try:
        parts = urlsplit(f"//{text[_SCHEME.match(text).end() :]}")  # type: ignore[union-attr]  # it matches nothing, too
        is_imgur = _HOST.fullmatch(parts.hostname or "") is not None
    except ValueError:
        return None
    kind, *others = [segment for segment in unquote(parts.path).split("/") if segment] or [""]
    depth = _SEGMENTS_BEFORE.get(kind.casefold(), 0)
    if not is_imgur or not depth or len(others) < depth:
        return None
    segment, is_sure = others[depth - 1], kind.casefold() == _ALBUM
    name = _NAME.match(segment)[0]  # type: ignore[index]  # likewise
    album_id = name.rstrip("-_").rpartition("-")[2]
    is_id = _ID.fullmatch(album_id) is not None and (is_sure or len(album_id) >= _MIN_ID)
    return Album(album_id, is_sure) if is_id and not _LIST.match(segment, len(name)) else None
