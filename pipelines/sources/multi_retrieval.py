"""The released multi-retrieval files (signature first)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipelines.documents.draft import Draft
from schemas.failures import Failure


def read_released(documents: Path, id2row: Path) -> Iterator[Draft | Failure]:
    raise NotImplementedError
