"""Entries of albums, and those of Reddit's own galleries, which posts have had since 2020.

    "is_gallery": true,
    "gallery_data":   {"items": [{"media_id": "abc", "caption": "Cut the wood."}, ...]}       their order
    "media_metadata": {"abc": {"status": "valid", "e": "Image", "m": "image/jpg", "s": {"u": "https://preview..."}}}

The address in `s.u` is signed and expires, so that of the original (`i.redd.it`) is made of id and type. A picture that
Reddit could not process, or no longer has, is a failed image of its document. A gallery that lost its list is gone.

Addresses of imgur albums, in the spellings that posts have.

    imgur.com/a/ID               an album
    imgur.com/gallery/ID         an album or a single picture that was made public; likewise /t/TAG/ID, /topic/TOPIC/ID,
                                 /r/SUB/ID

Hosts are imgur.com and imgur.io, their www., m. and i.; capitals, a title before the id (`some-title-ID`), a missing
scheme, a query, a fragment, what follows after a slash, and punctuation at the end change nothing. A comma between ids
lists pictures that have no captions, which is no album.
"""

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from pipelines.sources.fields import Object, typed
from pipelines.sources.records import FieldError, sentence, unusable
from schemas.failures import Reason
from schemas.tables import travels

_SCHEME = re.compile(r"(?:https?:)?(?://)?", re.IGNORECASE)
_HOST = re.compile(r"(?:(?:www|[im])\.)?imgur\.(?:com|io)")
_NAME = re.compile(r"[^&?#=;|<>\"'\s,+.()\[\]{}*\\!:]*")  # an id, perhaps after a title
_LIST = re.compile(r"[,+.][A-Za-z0-9]")  # of ids, or the ending of a file
_ID = re.compile("[A-Za-z0-9]+")
_ALBUM = "a"
_SEGMENTS_BEFORE = {_ALBUM: 1, "gallery": 1, "t": 2, "topic": 2, "r": 2}
_MIN_ID = 5  # letters and digits; shorter words after /gallery/ and /r/SUB/ are "new", "top", "hot"
GALLERY_FIELDS = ("is_gallery", "gallery_data", "media_metadata", "crosspost_parent_list")  # what is asked of the API
_ORIGINALS = "https://i.redd.it"
_MEDIA_ID = re.compile("[A-Za-z0-9_-]+")
_ENDINGS = {"jpg": "jpg", "jpeg": "jpg", "png": "png", "gif": "gif", "webp": "webp"}


class Gallery(msgspec.Struct, kw_only=True):
    """What a post says of its gallery, as it is published."""

    is_gallery: bool = False
    gallery_data: Object = {}
    media_metadata: Object = {}
    crosspost_parent_list: list[Object] = []


@travels
@dataclass(frozen=True, slots=True)
class AlbumEntry:
    """One block of an album.

    Attributes:
        image_uri: absolute; None where the block has no picture.
        caption: title and description in one line; None where there is neither.
        is_animated: an animation or a video: no image in the sense of SPEC 2.
    """

    image_uri: str | None
    caption: str | None
    is_animated: bool = False


def join_caption(title: str | None, description: str | None) -> str | None:
    """Return title and description joined by one space, in one line; None where nothing of them can be seen."""
    return sentence(f"{title or ''} {description or ''}").text or None


def gallery_of(post: Gallery) -> tuple[AlbumEntry, ...] | None:
    """Return the entries of a post's gallery, or of the gallery that it repeats; none of one that is gone.

    Returns:
        None where the post is no gallery.

    Raises:
        FieldError: BROKEN_RECORD: it is not the published form.
    """
    if post.is_gallery or post.gallery_data:
        items = typed(post.gallery_data.get("items") or [], list[Object], "$.gallery_data.items")
        return tuple(_entry(item, post.media_metadata) for item in items)
    parents = post.crosspost_parent_list
    return gallery_of(typed({**parents[0], "crosspost_parent_list": None}, Gallery)) if parents else None


def _entry(item: Mapping[str, Any], media: Mapping[str, Any]) -> AlbumEntry:
    """Return a picture's entry; what is wrong with its caption or its file costs no more than that."""
    caption, media_id = item.get("caption"), str(item.get("media_id"))
    text = join_caption(html.unescape(caption), None) if isinstance(caption, str) else None
    about = media.get(media_id)
    if not isinstance(about, Mapping) or about.get("status", "valid") != "valid":
        status = about.get("status") if isinstance(about, Mapping) else "none"
        problem = FieldError(
            Reason.NOT_FOUND, f"expected a picture that Reddit has, found {media_id} of status {status}"
        )
        return AlbumEntry(unusable(problem), text)
    is_moving = about.get("e", "Image") != "Image"
    return AlbumEntry(_address(media_id, about), text, is_moving)


def _address(media_id: str, about: Mapping[str, Any]) -> str:
    source = about.get("s")
    shown = str(source.get("u") or source.get("gif") or "") if isinstance(source, Mapping) else ""
    preview = html.unescape(shown)
    kind = str(about.get("m") or "").rpartition("/")[2] or urlsplit(preview).path.rpartition(".")[2]
    if kind.lower() in _ENDINGS and _MEDIA_ID.fullmatch(media_id):
        return f"{_ORIGINALS}/{media_id}.{_ENDINGS[kind.lower()]}"
    return preview or unusable(
        FieldError(Reason.MISSING_FIELD, f"{media_id}: expected the type of a picture, found {kind}")
    )


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
