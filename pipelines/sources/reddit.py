"""A Reddit submission and the imgur album it points at (signatures first; being filled in)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schemas.failures import Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
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
    """Return the submission of a published record, or why it cannot be used."""
    raise NotImplementedError


def select_album(submission: Submission, *, min_score: int) -> str | Failure:
    """Return the id of the imgur album a submission points at, or why it is left out."""
    raise NotImplementedError
