"""A Reddit submission, as dumps and the API both publish it, and the imgur album it points at.

How records are read is in `reddit_dump.py` and `reddit_api.py`; what an album holds is in `imgur.py`.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin, urlsplit

from pipelines.sources.fields import FieldError, checked, clean, optional, required
from pipelines.sources.takedowns import Takedowns
from schemas.failures import Failure, Reason, Stage

_REDDIT = "https://www.reddit.com"
_ALBUM_PAGES = "https://imgur.com/a"
_ALBUM_HOSTS = frozenset({"imgur.com", "www.imgur.com", "m.imgur.com"})
_ALBUM_PATH = re.compile(r"/a/(?:[^/]*-)?([A-Za-z0-9]+)(?:/.*)?")  # newer links spell the title before the id
_DELETED_AUTHOR = "[deleted]"
_DELETED_TITLES = frozenset({"[deleted]", "[deleted by user]", "[removed]"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """The published fields that are used here.

    Attributes:
        url: where it points, with HTML entities undone.
        permalink: path of its page on Reddit.
        created_utc: seconds since 1970.
        was_deleted_later: the archive saw that its author or a moderator took it down.
    """

    id: str
    subreddit: str
    score: int
    title: str
    url: str
    domain: str
    permalink: str
    is_self: bool
    over_18: bool
    author: str
    created_utc: int
    was_deleted_later: bool


def parse_submission(record: Mapping[str, Any], *, record_id: str) -> Submission | Failure:
    """Return the submission of a published record.

    Args:
        record: the JSON object.
        record_id: what a failure is filed under where the record has no id of its own.

    Returns:
        Or a failure: MISSING_FIELD (id, subreddit, score, title or url), BROKEN_RECORD (a field of another type).
    """
    try:
        return _parse(record)
    except FieldError as problem:
        own_id = record.get("id")
        return problem.failure(clean(own_id) if isinstance(own_id, str) and own_id else record_id)


def select_album(submission: Submission, *, min_score: int) -> str | Failure:
    """Return the id of the imgur album a submission points at, or why it is left out (SPEC 2, diy).

    Returns:
        Or a failure: DELETED_RECORD, LOW_SCORE, NOT_AN_ALBUM; the first that applies.
    """
    if submission.was_deleted_later:
        return _left_out(submission, Reason.DELETED_RECORD, "it was deleted after the archive copied it")
    if submission.author == _DELETED_AUTHOR and submission.title in _DELETED_TITLES:
        return _left_out(submission, Reason.DELETED_RECORD, f"its author and title are {submission.title}")
    if submission.score < min_score:
        return _left_out(submission, Reason.LOW_SCORE, f"expected a score of {min_score}, found {submission.score}")
    album_id = find_album_id(submission.url)
    if album_id is None:
        return _left_out(submission, Reason.NOT_AN_ALBUM, f"expected imgur.com/a/ID, found {submission.url}")
    return album_id


def find_takedown(submission: Submission, album_id: str, takedowns: Takedowns) -> Failure | None:
    """Return a failure (TAKEN_DOWN) where a list names a submission or its album, by id or by URL; else None."""
    pages = (submission_url(submission), submission.url, f"{_ALBUM_PAGES}/{album_id}")
    entry = takedowns.matches_record((submission.id, album_id), pages)
    if entry is None:
        return None
    return _left_out(submission, Reason.TAKEN_DOWN, f"on the takedown list by its {entry.partition(':')[0]}")


def submission_url(submission: Submission) -> str:
    """Return the address of a submission's page on Reddit."""
    return urljoin(_REDDIT, submission.permalink)


def find_album_id(url: str) -> str | None:
    """Return the id in the URL of an imgur album (`/a/ID`, whatever follows), or None for any other URL."""
    try:
        parts = urlsplit(html.unescape(url).strip())
        host = parts.hostname
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or host not in _ALBUM_HOSTS:
        return None
    match = _ALBUM_PATH.fullmatch(parts.path)
    return match.group(1) if match else None


def _parse(record: Mapping[str, Any]) -> Submission:
    meta: dict[str, Any] = optional(record, "_meta", {})
    return Submission(
        id=_present(record, "id"),
        subreddit=_present(record, "subreddit"),
        score=required(record, "score", int),
        title=html.unescape(required(record, "title", str)),
        url=html.unescape(_present(record, "url")),
        domain=optional(record, "domain", ""),
        permalink=optional(record, "permalink", ""),
        is_self=optional(record, "is_self", False),
        over_18=optional(record, "over_18", False),
        author=optional(record, "author", ""),
        created_utc=_seconds(record.get("created_utc")),
        was_deleted_later=optional(meta, "was_deleted_later", False),
    )


def _present(record: Mapping[str, Any], name: str) -> str:
    text = required(record, name, str)
    if not text.strip():
        raise FieldError(Reason.MISSING_FIELD, f"expected the field {name!r}, found it empty")
    return text


def _seconds(value: object) -> int:
    """Return a moment as whole seconds: dumps of some years have it as text, the API as a fraction."""
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return 0 if value is None else checked(value, int, "created_utc")


def _left_out(submission: Submission, reason: Reason, message: str) -> Failure:
    return Failure(Stage.SOURCES, submission.id, reason, message)
