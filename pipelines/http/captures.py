"""What a request was for and what it gave (store follows)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What a request is for; it decides what counts as a usable answer."""

    PAGE = "page"
    IMAGE = "image"  # `/removed.png` and HTML are failures
    API = "api"  # under an agreement with its host: robots.txt is not asked
    ROBOTS = "robots"  # the client's own


@dataclass(frozen=True, slots=True)
class Capture:
    source: str
    url: str
    final_url: str
    status: int
    headers: Mapping[str, str]
    body_sha256: str
    body_bytes: int
    fetched_at: str
    from_store: bool
