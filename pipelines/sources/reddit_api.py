"""Submissions of a listing of Reddit's API (signature first)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipelines.config import DiySource, HttpConfig
from pipelines.sources.reddit import Submission
from schemas.failures import Failure
from schemas.lake import Folder


@dataclass(frozen=True, slots=True)
class Credentials:
    client_id: str
    client_secret: str


def read_listing(
    source: DiySource, credentials: Credentials, *, http: HttpConfig, raw: Folder
) -> Iterator[Submission | Failure]:
    raise NotImplementedError
