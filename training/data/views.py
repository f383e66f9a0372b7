"""Which sentences of a document are read, by their roles, and how: each by itself, or fused to one row a document.

A split is read as one `TextView` of it, and so is what a user gives. Each sentence by itself (N's single source:
`caption`), or one row for a document that holds a text for each source (N 5.1: headline, lead, caption, body), for the
`multi-source` tower. Links follow: those of a sentence that is not read go, those of fused sentences are the fused
row's. Every row keeps the number of its sentence in the document.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.errors import UsageError
from training.data.documents import DocumentSet
from training.data.ragged import Int64, Ragged
from training.settings import Reading


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
    def of(cls, reading: Reading) -> TextView:
        """Return the view that a text tower reads."""
        sources = reading.needs.sources
        return cls(roles=sources, is_fused=True) if sources else cls(roles=reading.data.roles)

    def counts(self, roles: pa.Array, sentences: Ragged) -> Int64:
        """Return how many rows each of some documents has whose sentences have these roles."""
        if not self.roles:
            return sentences.counts
        is_read = pc.is_in(roles, pa.array(self.roles, roles.type)).to_numpy(zero_copy_only=False)
        counts = np.bincount(sentences.owners[is_read], minlength=len(sentences))
        return np.minimum(counts, 1) if self.is_fused else counts


ALL_SENTENCES = TextView()


def viewed(documents: DocumentSet, view: TextView) -> DocumentSet:
    """Return the documents as a view shows them; all other columns stay as they are.

    Raises:
        UsageError: the view goes by roles, and those of the documents are not known.
    """
    if not view.roles:
        return documents
    if documents.roles is None:
        raise UsageError(f"this model reads texts by their role ({', '.join(view.roles)}); the texts have no roles")
    is_read = np.array([role in view.roles for role in documents.roles], dtype=bool)
    rows = np.flatnonzero(is_read)
    owners = documents.sentences.owners[rows]
    if not view.is_fused:
        # The row of each sentence among those that are read of its document; -1 where it is not read.
        sentences = Ragged.of(np.bincount(owners, minlength=len(documents)))
        moved = np.full(len(is_read), -1, np.int64)
        moved[rows] = sentences.numbers
        return replace(documents.take_sentences(rows, sentences), links=_moved_links(documents, moved))
    owners, first = np.unique(owners, return_index=True)
    sources = tuple(_fused(documents, int(document), view.roles) for document in owners)
    fused = documents.take_sentences(rows[first], Ragged.of(np.bincount(owners, minlength=len(documents))))
    return replace(
        fused,
        texts=tuple(next((text for text in row if text), "") for row in sources),
        roles=(view.roles[0],) * len(sources),
        sources=sources,
        sentence_vectors=None,
        links=_moved_links(documents, np.where(is_read, 0, -1)),
    )


def _fused(documents: DocumentSet, document: int, sources: Sequence[str]) -> tuple[str, ...]:
    """Return a document's text for each source: its sentences of that role, joined by a space ("" where none is)."""
    rows = documents.sentences.rows(document)
    pairs = list(zip(documents.texts[rows], (documents.roles or ())[rows], strict=True))
    return tuple(" ".join(text for text, role in pairs if role == source) for source in sources)


def _moved_links(documents: DocumentSet, rows: Int64) -> tuple[Int64 | None, ...] | None:
    """Return the links of the rows that the N sentences have become (-1: not read), each once, in order."""
    if documents.links is None:
        return None
    return tuple(
        None if links is None else _moved(links, rows[part])
        for part, links in zip(documents.sentences, documents.links, strict=True)
    )


def _moved(links: Int64, rows: Int64) -> Int64:
    if not len(links):
        return links
    moved = np.stack([rows[links[:, 0]], links[:, 1]], axis=1)
    return np.unique(moved[moved[:, 0] >= 0], axis=0).reshape(-1, 2)
