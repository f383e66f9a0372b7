"""What came of linking a document of a data set version: how sure its links are, and which are wrong or were missed.

The ground truth is compared here with links that were chosen without it.
"""

from __future__ import annotations

from schemas.links import DocumentLinks, TrueLink
from training.data.documents import DocumentSet
from training.linking.links import LinkedDocument
from training.metrics.links import score_documents

RELATION_FROM = 0.5  # probability at which a link counts as having a relation


def outcome(linked: LinkedDocument, documents: DocumentSet, number: int) -> DocumentLinks:
    """Return what came of linking document `number` of some that were read with their links."""
    known = None if documents.links is None else documents.links[number]
    scores = score_documents([linked.similarities], [known]).scores
    predicted = {(link.sentence, link.image) for link in linked.links}
    numbers = linked.sentence_numbers
    truth = None if known is None else {(int(numbers[row]), image) for row, image in known.tolist()}
    sureness = [link.similarity if link.probability is None else link.probability for link in linked.links]
    relations = {
        each.name for link in linked.links for each in link.relations or () if each.probability >= RELATION_FROM
    }
    return DocumentLinks(
        document=linked.id,
        language=(documents.languages or ())[number],
        sentences=len(numbers),
        images=linked.similarities.shape[1],
        links=len(predicted),
        wrong=None if truth is None else len(predicted - truth),
        missed=None if truth is None else len(truth - predicted),
        auc=scores[0][0] if scores else None,
        confidence=sum(sureness) / len(sureness) if sureness else None,
        relations=tuple(sorted(relations)),
        truth=None if truth is None else tuple(TrueLink(*link) for link in sorted(truth)),
    )
