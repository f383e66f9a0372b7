"""Which of a document's sentences are read, by their roles, and whether several sources become one text (Liu 2020).

Three views: all sentences as they are; the sentences of some roles (N's single source: `caption`); or one fused row a
document that holds a text for each source (N 5.1: headline, lead, caption, body), for the `multi-source` tower. Links
follow: those of a sentence that is not read go, those of fused sentences are the fused row's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from training.config import TextEncoder, TrainConfig
from training.data.documents import DocumentSet, Int64, Vectors, offsets_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TextView:
    """Which sentences are read.

    Attributes:
        roles: their roles; () for all sentences.
        is_fused: whether a document's sentences of these roles are one row, with a source for each role.
    """

    roles: tuple[str, ...] = ()
    is_fused: bool = False

    @classmethod
    def of(cls, config: TrainConfig) -> TextView:
        """Return the view that a configuration's text tower reads."""
        if config.encoder.text is TextEncoder.MULTI_SOURCE:
            return cls(roles=config.encoder.sources, is_fused=True)
        return cls(roles=config.data.roles)

    def rows(self, roles: Iterable[str]) -> int:
        """Return how many rows a document has whose sentences have these roles."""
        found = sum(not self.roles or role in self.roles for role in roles)
        return min(found, 1) if self.is_fused else found


ALL_SENTENCES = TextView()


def viewed(documents: DocumentSet, view: TextView) -> DocumentSet:
    """Return the documents as a view shows them; all other columns stay as they are."""
    if view == ALL_SENTENCES:
        return documents
    return _fused(documents, view.roles) if view.is_fused else _selected(documents, view.roles)


def fuse(texts: Sequence[str], roles: Sequence[str], sources: Sequence[str]) -> tuple[str, ...]:
    """Return a document's text for each source: its sentences of that role, joined by a space ("" where none is)."""
    return tuple(
        " ".join(text for text, role in zip(texts, roles, strict=True) if role == source) for source in sources
    )


def _selected(documents: DocumentSet, wanted: tuple[str, ...]) -> DocumentSet:
    is_read = np.array([role in wanted for role in documents.roles], dtype=bool)
    kept = np.flatnonzero(is_read)
    counts = [int(is_read[rows].sum()) for rows in _document_slices(documents)]
    return replace(
        documents,
        texts=tuple(documents.texts[place] for place in kept),
        roles=tuple(documents.roles[place] for place in kept),
        sentence_offsets=offsets_of(counts),
        sentence_vectors=_rows(documents.sentence_vectors, kept),
        links=_selected_links(documents, is_read),
    )


def _selected_links(documents: DocumentSet, is_read: npt.NDArray[np.bool_]) -> tuple[Int64 | None, ...] | None:
    if documents.links is None:
        return None
    moved: list[Int64 | None] = []
    for rows, links in zip(_document_slices(documents), documents.links, strict=True):
        if links is None:
            moved.append(None)
            continue
        places = np.cumsum(is_read[rows]) - 1
        kept = links[is_read[rows][links[:, 0]]] if len(links) else links
        moved.append(np.stack([places[kept[:, 0]], kept[:, 1]], axis=1) if len(kept) else np.zeros((0, 2), np.int64))
    return tuple(moved)


def _fused(documents: DocumentSet, sources: tuple[str, ...]) -> DocumentSet:
    """Return one row for each document that has a sentence of a source; its text is the first source there is."""
    rows: list[tuple[str, ...]] = []
    counts: list[int] = []
    for part in _document_slices(documents):
        roles = documents.roles[part]
        has_source = any(role in sources for role in roles)
        counts.append(int(has_source))
        if has_source:
            rows.append(fuse(documents.texts[part], roles, sources))
    return replace(
        documents,
        texts=tuple(next((text for text in row if text), "") for row in rows),
        roles=(sources[0],) * len(rows),
        sources=tuple(rows),
        sentence_offsets=offsets_of(counts),
        sentence_vectors=None,
        links=_fused_links(documents, sources),
    )


def _fused_links(documents: DocumentSet, sources: tuple[str, ...]) -> tuple[Int64 | None, ...] | None:
    if documents.links is None:
        return None
    moved: list[Int64 | None] = []
    for part, links in zip(_document_slices(documents), documents.links, strict=True):
        if links is None:
            moved.append(None)
            continue
        roles = documents.roles[part]
        images = sorted({int(image) for sentence, image in links if roles[sentence] in sources})
        moved.append(np.array([(0, image) for image in images], np.int64).reshape(-1, 2))
    return tuple(moved)


def _document_slices(documents: DocumentSet) -> list[slice]:
    bounds = documents.sentence_offsets
    return [slice(int(bounds[d]), int(bounds[d + 1])) for d in range(len(documents))]


def _rows(vectors: Vectors | None, kept: Int64) -> Vectors | None:
    return None if vectors is None else vectors[kept]
