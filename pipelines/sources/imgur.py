"""An imgur album: its blocks in order, each an image and maybe a caption, and the draft it makes of a submission.

What is decided here: which entries are animated, what a caption is, which image it was written under. Reading the
two generations of album pages is in `imgur_pages.py`, the API's answer is read here. Deleted images show only when
they are fetched.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from pipelines.sources.candidate import CandidateDocument
from pipelines.sources.fields import checked, optional, required
from pipelines.sources.reddit import Submission, submission_url
from schemas.documents import Link, Provenance, Sentence
from schemas.failures import Failure, Reason, Stage

DATASET = "diy"
LANGUAGE = "en"
ANIMATED_EXTENSIONS = (".gifv", ".mp4", ".webm")  # a .gif may stand still: its frames are counted later
_SPACE = re.compile(r"\s+")


class AlbumError(ValueError):
    """An album that cannot be read.

    Attributes:
        reason: BROKEN_RECORD (not the published form) or NOT_FOUND (its host says that it is gone).
    """

    def __init__(self, message: str, reason: Reason = Reason.BROKEN_RECORD) -> None:
        super().__init__(message)
        self.reason = reason


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


@dataclass(frozen=True, slots=True)
class Album:
    id: str
    entries: tuple[AlbumEntry, ...]


def album_page_url(base_url: str, album_id: str) -> str:
    """Return the address of an album's page."""
    return f"{base_url.rstrip('/')}/a/{quote(album_id, safe='')}"


def album_api_url(base_url: str, album_id: str) -> str:
    """Return the address of an album in the API."""
    return f"{base_url.rstrip('/')}/3/album/{quote(album_id, safe='')}"


def parse_album_api(data: bytes) -> Album:
    """Return the album in an answer of `GET /3/album/{id}`.

    Raises:
        AlbumError: it says that there is none (NOT_FOUND), or is not the published form (BROKEN_RECORD).
    """
    try:
        answer = checked(json.loads(data), dict, "the answer")
        if answer.get("success") is False:
            raise AlbumError(f"the API has no such album: status {answer.get('status')}", Reason.NOT_FOUND)
        album = required(answer, "data", dict)
        images = required(album, "images", list)
        entries = tuple(_api_entry(checked(image, dict, "an image")) for image in images)
        return Album(optional(album, "id", ""), entries)
    except AlbumError:
        raise
    except (ValueError, RecursionError) as error:  # FieldError and JSON's own are among them
        raise AlbumError(f"the API's album: {error}") from error


def album_to_draft(submission: Submission, album: Album) -> tuple[CandidateDocument, tuple[Failure, ...]]:
    """Return the document of an album, and a failure for each entry discarded as animated.

    Every caption is a sentence, in order; it links to the image it was written under, if that one is kept.
    """
    sentences: list[Sentence] = []
    images: list[str] = []
    links: list[Link] = []
    failures: list[Failure] = []
    for position, entry in enumerate(album.entries):
        has_image = entry.image_uri is not None and not entry.is_animated
        if entry.is_animated:
            failures.append(_animated(submission, position, entry))
        if entry.image_uri is not None and has_image:
            images.append(entry.image_uri)
        if entry.caption is not None:
            sentences.append(Sentence(entry.caption))
            if has_image:
                links.append(Link(len(sentences) - 1, len(images) - 1))
    draft = CandidateDocument(
        id=submission.id,
        dataset=DATASET,
        sentences=tuple(sentences),
        image_uris=tuple(images),
        links=tuple(links),
        provenance=Provenance("reddit", submission.id, submission_url(submission)),
        language=LANGUAGE,
    )
    return draft, tuple(failures)


def join_caption(title: str | None, description: str | None) -> str | None:
    """Return title and description joined by one space, in one line; None where nothing of them can be seen."""
    parts = (_SPACE.sub(" ", part).strip() for part in (title, description) if part)
    return " ".join(part for part in parts if part) or None


def json_caption(fields: Mapping[str, Any]) -> str | None:
    """Return the caption in an object's title and description, where HTML entities are still encoded."""
    title, description = (html.unescape(optional(fields, name, "")) for name in ("title", "description"))
    return join_caption(title, description)


def _api_entry(image: Mapping[str, Any]) -> AlbumEntry:
    link = required(image, "link", str)
    is_video = optional(image, "type", "").startswith("video/")
    return AlbumEntry(
        image_uri=link,
        caption=json_caption(image),
        is_animated=is_video or optional(image, "animated", False),
    )


def _animated(submission: Submission, position: int, entry: AlbumEntry) -> Failure:
    message = f"expected a still picture, found an animation: {entry.image_uri or 'without an address'}"
    return Failure(Stage.IMAGES, f"{submission.id}#{position}", Reason.ANIMATED_IMAGE, message)
