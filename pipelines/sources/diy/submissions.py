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

What is read of a submission of Reddit, the dumps, and which are wanted.

Dumps are Pushshift's and Arctic Shift's `RS_*`, one JSON object a line, .zst, .xz, .bz2 or .gz. The API gives the same
records (`datasets/diy.py`).

Any of the fields that say that a post is gone may be absent. A post is gone when its author deleted it, or a moderator,
a filter, Reddit or a claim of copyright removed it. A deleted account alone (`author`) takes no post down.
"""

import html
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from pipelines.files import input_file, read_lines
from pipelines.sources.fields import Object, identifier, text_or_none, typed
from pipelines.sources.records import FieldError, json_object, outcomes_of, rejected, sentence, unusable
from pipelines.sources.takedowns import Takedowns, taken_down
from pipelines.sources.text import absolute_url
from schemas.failures import Failure, Reason, Stage
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
_REDDIT = "https://www.reddit.com"
_ALBUM_PAGES = "https://imgur.com/a"
_DELETED_AUTHOR = "[deleted]"
# `[ Removed by moderator ]`, `[ Removed by Reddit on account of violating the [content policy](/help/contentpolicy). ]`
_PLACEHOLDER = re.compile(r"\s*\[\s*(?:deleted|removed)(?:\s+by\s(?:[^\[\]]|\[[^\[\]]*\])*)?\s*\]\s*", re.IGNORECASE)
_TEXTS = ("title", "selftext")
# Who or what removed it: null, false or empty in a post that stands.
_REMOVERS = ("removed_by_category", "removed_by", "banned_by", "removal_reason", "banned_at_utc", "removed", "spam")
_SEEN_LATER = ("was_deleted_later", "was_initially_deleted", "removal_type")  # of `_meta`, Arctic Shift's own
REMOVAL_FIELDS = (*_TEXTS, *_REMOVERS, "is_robot_indexable", "crosspost_parent_list")  # what is asked of the API
_NOTHING = frozenset({"", "null", "none", "false", "0"})
_TIMES = ("retrieved_on", "retrieved_utc", "retrieved_2nd_on", "updated_on", "updated_utc")


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


class _Post(Gallery, kw_only=True):
    """A record, as it is published."""

    subreddit: str
    score: int
    title: str
    url: str
    permalink: str = ""
    author: str = _DELETED_AUTHOR
    meta: Object = msgspec.field(name="_meta", default_factory=dict)


@travels
@dataclass(frozen=True, slots=True)
class Submission:
    """The published fields that are used here.

    Attributes:
        url: where it points, with HTML entities undone; of a post that repeats another, where that one points.
        permalink: path of its page on Reddit.
        removal: which field says that it is gone (`removal_of`); empty: none does.
        captured: when the record was last brought up to date, in seconds since 1970; 0: unknown.
        gallery: its own pictures, where it is a gallery of Reddit's; empty: it lost them.
    """

    id: str
    score: int
    title: str
    url: str
    permalink: str
    author: str
    removal: str = ""
    captured: float = 0.0
    gallery: tuple[AlbumEntry, ...] | None = None

    @property
    def page_url(self) -> str:
        """Return the address of its page on Reddit."""
        return absolute_url(_REDDIT, self.permalink)


def read_dump(path: str, *, subreddit: str) -> Iterator[Submission | Failure]:
    """Yield a subreddit's submissions in file order, and a failure for each record that cannot be used.

    A damaged or truncated line is a failure filed under `<file name>:<line>`, and so is a compressed stream that ends
    early; records of other subreddits pass silently. Bytes that are not UTF-8 become U+FFFD.

    Raises:
        NotFoundError: there is no such file.
    """
    return read_records(_records(path, subreddit))


def read_records(records: Iterable[tuple[str, dict[str, Any] | FieldError]]) -> Iterator[Submission | Failure]:
    """Yield the submission of each published record, or a failure: MISSING_FIELD, BROKEN_RECORD."""
    return outcomes_of(records, _parse, identifier)


def _records(path: str, subreddit: str) -> Iterator[tuple[str, dict[str, Any] | FieldError]]:
    """Yield the records of a subreddit, and what is none, each with its line in the file.

    A month of Reddit holds tens of millions of lines of which one subreddit has a few thousand: a line is decoded only
    where the subreddit's name, in quotes, is somewhere in its bytes.
    """
    file_name, name = input_file(path).name, f'"{subreddit.lower()}"'.encode()
    for number, line in read_lines(path):
        if name in line.lower() or not line.rstrip().endswith(b"}"):
            record = json_object(line, is_of_web=True)
            found = subreddit if isinstance(record, FieldError) else record.get("subreddit")
            if not isinstance(found, str) or found.casefold() == subreddit.casefold():
                yield f"{file_name}:{number}", record


def _parse(record: Mapping[str, Any], _: str) -> Iterator[Submission]:
    removal = removal_of(record)
    if removal:  # what else it lacks must not hide that
        url, permalink = (html.unescape(str(record.get(name) or "")) for name in ("url", "permalink"))
        yield Submission(identifier(record), 0, "", url, permalink, "", removal)
        return
    post = typed(record, _Post)
    url, parents = html.unescape(post.url), post.crosspost_parent_list
    if find_album(url) is None and parents:  # of a post that repeats another, where that one points
        url = html.unescape(text_or_none(parents[0], "url") or url)
    yield Submission(
        id=identifier(record),
        score=post.score,
        title=html.unescape(post.title),
        url=url,
        permalink=post.permalink,
        author=post.author,
        captured=max(_seconds(each.get(name)) for each in (record, post.meta) for name in _TIMES),
        gallery=gallery_of(post),
    )


def _seconds(value: object) -> float:
    """Return a time that a record has as a number or as digits; 0 where it has none."""
    if isinstance(value, str):
        return float(value) if value.isascii() and value.isdigit() else 0.0
    return float(value) if isinstance(value, int | float) else 0.0


def choose_capture(submissions: Iterable[Submission]) -> list[Submission]:
    """Return the records of one post, the one that counts first: one that says that it is gone, else the latest.

    Of equally late ones the highest score counts, as scores grow.
    """
    return sorted(submissions, key=lambda each: (not each.removal, -each.captured, -each.score, repr(each)))


def reject_submission(
    submission: Submission, *, min_score: int, takedowns: Takedowns, hessel: bool = False
) -> Failure | None:
    """Return why a submission is left out before anything is fetched for it, or None where it is wanted (SPEC 2, diy).

    Args:
        submission: the record that counts.
        min_score: a lower one is left out.
        takedowns: what must not be asked for.
        hessel: whether imgur's addresses with `/a/` alone are albums.

    Returns:
        A failure: TAKEN_DOWN, DELETED_RECORD, LOW_SCORE or NOT_AN_ALBUM; the first that applies.
    """
    album = find_album(submission.url)
    pages = (submission.page_url, submission.url, *([f"{_ALBUM_PAGES}/{album.id}"] if album else []))
    entry = takedowns.matches_record((submission.id, *([album.id] if album else [])), pages)
    if entry is not None:
        return taken_down(Stage.SOURCES, entry)
    is_album = album is not None and (album.is_sure or not hessel)
    if submission.removal:
        reason, message = Reason.DELETED_RECORD, submission.removal
    elif submission.score < min_score:
        reason, message = Reason.LOW_SCORE, f"expected a score of {min_score}, found {submission.score}"
    elif submission.gallery == () and not hessel:
        reason, message = Reason.DELETED_RECORD, "a gallery without pictures"
    elif not is_album and (hessel or submission.gallery is None):
        expected = "imgur.com/a/ID, as source.album_forms = hessel-2019" if hessel else "an album of imgur or a gallery"
        reason, message = Reason.NOT_AN_ALBUM, f"expected {expected}, found {submission.url}"
    else:
        return None
    return rejected(submission.id, reason, message)


def removal_of(record: Mapping[str, Any]) -> str:
    """Return the field that says that a post is gone, with its value; empty where none does."""
    meta, parents = record.get("_meta"), record.get("crosspost_parent_list")
    found = [
        *(name for name in _TEXTS if isinstance(record.get(name), str) and _PLACEHOLDER.fullmatch(record[name])),
        *(name for name in _REMOVERS if _is_said(record.get(name))),
        *(["is_robot_indexable"] if record.get("is_robot_indexable") is False else []),  # Reddit's own mark of it
    ]
    if found:
        return f"{found[0]}: {record[found[0]]}"
    later = meta if isinstance(meta, Mapping) else {}
    for name in _SEEN_LATER:
        if _is_said(later.get(name)):
            return f"_meta.{name}: {later[name]}"
    for parent in parents if isinstance(parents, list) else ():
        if isinstance(parent, Mapping) and (removal := removal_of({**parent, "crosspost_parent_list": None})):
            return f"the post that it repeats has {removal}"
    return ""


def _is_said(value: object) -> bool:
    return bool(value) and str(value).strip().casefold() not in _NOTHING
