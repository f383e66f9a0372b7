"""A user's own documents (signature first)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipelines.documents.draft import Draft
from schemas.failures import Failure


def read_documents(path: Path) -> Iterator[Draft | Failure]:
    raise NotImplementedError
