"""What programs import: `from multilink import Archive, search`.

The stages themselves are in `pipelines`, `training` and `orchestration`; the command is `multilink`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from orchestration.archive import Archive
from training.retrieval.search import SearchResult

__all__ = ["Archive", "SearchResult", "search"]


def search(index: str | Path, **query: Any) -> SearchResult:
    """Return what one query finds in the index of a folder or URI; of several, open an `Archive` once.

    Args:
        index: path or URI that `multilink index` printed.
        query: as `Archive.search` takes it: `headline=`, `lead=`, `where=` ...
    """
    with Archive(index) as archive:
        return archive.search(**query)
