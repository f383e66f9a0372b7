"""Imgur albums (signatures first)."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.documents.draft import Draft
from pipelines.sources.reddit import Submission
from schemas.failures import Failure


class AlbumError(ValueError):
    """An album that cannot be read; `reason` is BROKEN_RECORD or NOT_FOUND."""


@dataclass(frozen=True, slots=True)
class AlbumEntry:
    image_uri: str | None
    caption: str | None
    is_animated: bool = False


@dataclass(frozen=True, slots=True)
class Album:
    id: str
    entries: tuple[AlbumEntry, ...]


def album_page_url(base_url: str, album_id: str) -> str:
    raise NotImplementedError


def album_api_url(base_url: str, album_id: str) -> str:
    raise NotImplementedError


def parse_album_page(html: str | bytes, *, base_url: str) -> Album:
    raise NotImplementedError


def parse_album_api(data: bytes) -> Album:
    raise NotImplementedError


def album_to_draft(submission: Submission, album: Album) -> tuple[Draft, tuple[Failure, ...]]:
    raise NotImplementedError
