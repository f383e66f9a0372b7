"""What is read of a submission of Reddit, the dumps, and which are wanted.

Dumps are Pushshift's and Arctic Shift's `RS_*`, one JSON object a line, .zst, .xz, .bz2 or .gz. The API gives the same
records (`listing.py`).

Any of the fields that say that a post is gone may be absent. A post is gone when its author deleted it, or a moderator,
a filter, Reddit or a claim of copyright removed it. A deleted account alone (`author`) takes no post down.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import msgspec

from pipelines.files import input_file, read_lines
from pipelines.sources.diy.galleries import AlbumEntry, Gallery, find_album, gallery_of
from pipelines.sources.fields import Object, identifier, text_or_none, typed
from pipelines.sources.records import FieldError, json_object, outcomes_of, rejected
from pipelines.sources.takedowns import Takedowns, taken_down
from pipelines.sources.text import absolute_url
from schemas.failures import Failure, Reason, Stage
from schemas.tables import travels

_REDDIT = "https://www.reddit.com"
_ALBUM_PAGES = "https://imgur.com/a"
_DELETED_AUTHOR = "[deleted]"
_PLACEHOLDER = re.compile(
    r"\s*\[\s*(deleted|removed)(\s+by\s[^\]]*)?\s*\]\s*", re.IGNORECASE
)  # `[ Removed by moderator ]`
_TEXTS = ("title", "selftext")
# Who or what removed it: null, false or empty in a post that stands.
_REMOVERS = ("removed_by_category", "removed_by", "banned_by", "removal_reason", "banned_at_utc", "removed", "spam")
_SEEN_LATER = ("was_deleted_later", "removal_type")  # of `_meta`, Arctic Shift's own
REMOVAL_FIELDS = (*_TEXTS, *_REMOVERS, "is_robot_indexable", "crosspost_parent_list")  # what is asked of the API
_NOTHING = frozenset({"", "null", "none", "false", "0"})
_TIMES = ("retrieved_on", "retrieved_utc", "retrieved_2nd_on", "updated_on", "updated_utc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Keys of services, read from its environment by the worker that asks, and never written anywhere.

    Empty where a service is not used.
    """

    reddit_client_id: str = field(default="", repr=False)
    reddit_client_secret: str = field(default="", repr=False)
    imgur_client_id: str = field(default="", repr=False)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Credentials:
        """Return the keys in REDDIT_CLIENT_ID, REDDIT_CLIENT_SECRET and IMGUR_CLIENT_ID."""
        return cls(**{key.name: environment.get(key.name.upper(), "") for key in fields(cls)})


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
