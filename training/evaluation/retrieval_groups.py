"""Retrieval by group: the documents of each language, the texts of each role, each source of a fused model alone.

A group is a pool of its own: its texts look for their images among the images of the group, and back (Liu 2020, tables
1, 3 and 4 judge each source and each language so). A fused model reads one source and finds the others empty, as when a
document lacks them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from training.data.documents import DocumentSet
from training.data.ragged import Int64
from training.data.views import TextView
from training.evaluation.pair_scores import linked_pool
from training.evaluation.retrieval import RetrievalScores, Vectors, retrieval_scores
from training.model import EmbeddedDocument, LinkModel
from training.towers.inputs import text_input

LANGUAGE, ROLE, SOURCE = "language", "role", "source"
Links = tuple[Int64 | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRetrieval:
    """One direction of one group.

    Attributes:
        kind: what the groups are: `language`, `role`, `source`.
        name: of the group.
        scores: over the group's pool.
    """

    kind: str
    name: str
    scores: RetrievalScores


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Texts of all documents, and the links of those that are of the group (None for the others)."""

    kind: str
    name: str
    texts: Sequence[Vectors]
    links: Links


def retrieval_groups(
    model: LinkModel, documents: DocumentSet, embedded: Sequence[EmbeddedDocument]
) -> tuple[GroupRetrieval, ...]:
    """Return retrieval by language, by role and by source, of whichever there are several.

    Args:
        model: whose vectors are retrieved by.
        documents: as the model reads them, with links.
        embedded: their vectors.
    """
    images = [each.images for each in embedded]
    found: list[GroupRetrieval] = []
    for group in _groups(model, documents, [each.texts for each in embedded]):
        pool = linked_pool(documents, group.texts, images, group.links)
        if len(pool.pairs):
            scores = retrieval_scores(pool, samples=0)
            found += [GroupRetrieval(kind=group.kind, name=group.name, scores=row) for row in scores]
    return tuple(found)


def _groups(model: LinkModel, documents: DocumentSet, texts: Sequence[Vectors]) -> Iterator[_Group]:
    links, languages = documents.links or (), documents.languages or ()
    for language in _several(languages):
        kept = tuple(known if own == language else None for known, own in zip(links, languages, strict=True))
        yield _Group(kind=LANGUAGE, name=language, texts=texts, links=kept)
    if documents.sources is None:
        for role in _several(documents.roles or ()):
            yield _Group(kind=ROLE, name=role, texts=texts, links=_links_of_role(documents, role))
    else:
        for place, source in enumerate(TextView.of(model.card.config).roles):
            yield _source_alone(model, documents, place, source)


def _several(names: Sequence[str]) -> list[str]:
    different = sorted(set(names))
    return different if len(different) > 1 else []


def _links_of_role(documents: DocumentSet, role: str) -> Links:
    """Return the links of the sentences of a role, counted as before."""
    of_role = np.array([name == role for name in documents.roles or ()], dtype=bool)
    return tuple(
        None if known is None or not len(known) else known[of_role[rows][known[:, 0]]]
        for rows, known in zip(documents.sentences, documents.links or (), strict=True)
    )


def _source_alone(model: LinkModel, documents: DocumentSet, place: int, source: str) -> _Group:
    """Return the documents that have a source, each read with all others empty."""
    rows = [
        tuple(text if column == place else "" for column, text in enumerate(row)) for row in documents.sources or ()
    ]
    texts = tuple(row[place] for row in rows)
    vectors = model.encode_sentences(text_input(replace(documents, texts=texts, sources=tuple(rows))))
    links = tuple(
        known if any(text.strip() for text in texts[part]) else None
        for part, known in zip(documents.sentences, documents.links or (), strict=True)
    )
    alone = [vectors[part] for part in documents.sentences]
    return _Group(kind=SOURCE, name=source, texts=alone, links=links)
