"""What is read of a submission of Reddit, the dumps, and which are wanted.

Dumps are Pushshift's and Arctic Shift's `RS_*`, one JSON object a line, .zst, .xz, .bz2 or .gz. The API gives the same
records (`listing.py`).
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import urlsplit

from pipelines.files import input_file, read_lines
from pipelines.sources.records import FieldError, identifier, json_object, optional, outcomes_of, rejected, required
from pipelines.sources.takedowns import Takedowns, taken_down
from pipelines.sources.text import absolute_url
from schemas.failures import Failure, Reason, Stage
from schemas.tables import travels

_REDDIT = "https://www.reddit.com"
_ALBUM_PAGES = "https://imgur.com/a"
_ALBUM_HOSTS = frozenset({"imgur.com", "www.imgur.com", "m.imgur.com"})
_ALBUM_PATH = re.compile(r"/a/(?:[^/]*-)?([A-Za-z0-9]+)(?:/.*)?")  # newer links spell the title before the id
_DELETED_AUTHOR = "[deleted]"
_DELETED_TITLES = frozenset({"[deleted]", "[deleted by user]", "[removed]"})


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


@travels
@dataclass(frozen=True, slots=True)
class Submission:
    """The published fields that are used here.

    Attributes:
        url: where it points, with HTML entities undone.
        permalink: path of its page on Reddit.
        was_deleted_later: the archive saw that its author or a moderator took it down.
    """

    id: str
    score: int
    title: str
    url: str
    permalink: str
    author: str
    was_deleted_later: bool

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
    required(record, "subreddit", str)
    meta: dict[str, Any] = optional(record, "_meta", {})
    yield Submission(
        id=identifier(record),
        score=required(record, "score", int),
        title=html.unescape(required(record, "title", str)),
        url=html.unescape(required(record, "url", str)),
        permalink=optional(record, "permalink", ""),
        author=optional(record, "author", _DELETED_AUTHOR),
        was_deleted_later=optional(meta, "was_deleted_later", False),
    )


def reject_submission(submission: Submission, *, min_score: int, takedowns: Takedowns) -> Failure | None:
    """Return why a submission is left out before anything is fetched for it, or None where it is wanted (SPEC 2, diy).

    Returns:
        A failure: TAKEN_DOWN, DELETED_RECORD, LOW_SCORE or NOT_AN_ALBUM; the first that applies.
    """
    album_id = find_album_id(submission.url)
    pages = (submission.page_url, submission.url, f"{_ALBUM_PAGES}/{album_id}")
    is_deleted = submission.author == _DELETED_AUTHOR and submission.title in _DELETED_TITLES
    entry = takedowns.matches_record((submission.id, str(album_id)), pages)
    if entry is not None:
        return taken_down(Stage.SOURCES, entry)
    if submission.was_deleted_later or is_deleted:
        reason, message = Reason.DELETED_RECORD, "its author or a moderator took it down"
    elif submission.score < min_score:
        reason, message = Reason.LOW_SCORE, f"expected a score of {min_score}, found {submission.score}"
    elif album_id is None:
        reason, message = Reason.NOT_AN_ALBUM, f"expected imgur.com/a/ID, found {submission.url}"
    else:
        return None
    return rejected(submission.id, reason, message)


def rank(submission: Submission) -> tuple[int, str]:
    """Return where a record comes among those of its id: the highest score first, as a rule the latest captured."""
    return -submission.score, repr(submission)


def find_album_id(url: str) -> str | None:
    """Return the id in the URL of an imgur album (`/a/ID`, whatever follows), or None for any other URL."""
    try:
        parts = urlsplit(html.unescape(url).strip())
        is_album = parts.scheme in ("http", "https") and parts.hostname in _ALBUM_HOSTS
    except ValueError:
        return None
    match = _ALBUM_PATH.fullmatch(parts.path) if is_album else None
    return match.group(1) if match else None
