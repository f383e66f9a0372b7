"""Submissions of a dump file (signature first)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipelines.sources.reddit import Submission
from schemas.failures import Failure


def read_submissions(path: Path, *, subreddit: str) -> Iterator[Submission | Failure]:
    raise NotImplementedError
