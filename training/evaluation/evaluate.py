"""How well a model finds the links of a split: scores of each document, their means, and random's on the same ones.

A model is evaluated on a data set version (`evaluate_model`); matrices that were made elsewhere come from a file
(`score_files.py`). Drawing a report of an `Evaluation` is `report.py`'s, comparing two `bootstrap.py`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from schemas.documents import Split
from schemas.errors import UsageError
from schemas.lake import Lake
from schemas.manifest import read_manifest
from training.baselines.random import random_scores
from training.data.documents import DocumentSet
from training.data.loading import read_for_model
from training.data.ragged import Int64
from training.evaluation.bootstrap import Interval, mean_interval
from training.evaluation.links import Links, LinkScore, LinkScores, Matrix, score_documents
from training.evaluation.pair_scores import PairMeans, PairScores, linked_pool, score_pairs
from training.evaluation.retrieval import Pool
from training.model import EmbeddedDocument, LinkModel

FULLY_LINKED = "every pair linked"


@dataclass(frozen=True, slots=True)
class MeanScores:
    """Means over documents in percent, each with its 95% bootstrap interval."""

    auc: Interval
    precision_at_1: Interval
    precision_at_5: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What came of an evaluation.

    Attributes:
        ids: every document, scored or not.
        matrices: n x m similarities of each.
        links: (row, image) links of each, or None where unknown.
        sentence_numbers: indices in each document of the sentences that the rows of its matrix are.
        scored: positions of the scored documents.
        scores: their scores, percent.
        link_means: of the scores; None where no document could be scored (one sentence and one image each).
        random_means: of a model that draws every similarity at random, on the same documents.
        left_out: documents that could not be scored, by reason.
        where: what was evaluated, for messages.
        pairs: scores of retrieval, of documents that have links; None where they were not asked for or there are none.
    """

    ids: tuple[str, ...]
    matrices: tuple[Matrix, ...]
    links: tuple[Int64 | None, ...]
    sentence_numbers: tuple[Int64, ...]
    scored: tuple[int, ...]
    scores: tuple[LinkScore, ...]
    link_means: MeanScores | None
    random_means: MeanScores | None
    left_out: Mapping[str, int]
    where: str
    pairs: PairScores | None = None

    @property
    def mean(self) -> MeanScores:
        """Return the mean scores.

        Raises:
            UsageError: no document could be scored.
        """
        if self.link_means is None:
            raise _nothing_to_score(self.where, self.left_out)
        return self.link_means

    @property
    def random(self) -> MeanScores:
        """Return random's mean scores.

        Raises:
            UsageError: no document could be scored.
        """
        if self.random_means is None:
            raise _nothing_to_score(self.where, self.left_out)
        return self.random_means

    @property
    def own_means(self) -> MeanScores | PairMeans | None:
        """Return the mean scores of links, or where no document has any those of retrieval, or None."""
        return self.link_means or (None if self.pairs is None else self.pairs.means())

    @property
    def document_auc(self) -> dict[str, float]:
        """Return document id -> AUC in percent, of the scored documents."""
        return {self.ids[place]: score.auc for place, score in zip(self.scored, self.scores, strict=True)}


def evaluate_model(
    model: LinkModel, lake: Lake, reference: str, split: Split | str = Split.TEST, *, with_pairs: bool = False
) -> Evaluation:
    """Return how well a model finds the links of a split of `NAME[@VERSION]`.

    Args:
        model: to be evaluated.
        lake: holds the data set.
        reference: data set and version.
        split: whose documents are scored.
        with_pairs: whether retrieval is scored though links can be; where they cannot, it always is.

    Raises:
        NotFoundError: the data set, version or split is not there.
        UsageError: the data set lacks the feature columns the model reads, or no link is known.
    """
    documents = read_documents(model, lake, reference, split)
    return evaluate_embedded(
        documents, model.embed(documents), where=f"{reference}, split {split}", with_pairs=with_pairs
    )


def evaluate_embedded(
    documents: DocumentSet, embedded: Sequence[EmbeddedDocument], *, where: str, with_pairs: bool = False
) -> Evaluation:
    """Return the evaluation of documents whose vectors are known; see `evaluate_model`.

    Raises:
        UsageError: no link is known.
    """
    links = documents.links or ()
    found = evaluate_matrices(
        documents.ids,
        tuple(document.similarities() for document in embedded),
        links,
        sentence_numbers=[documents.sentence_numbers[rows] for rows in documents.sentences],
        where=where,
        may_be_unscored=any(known is not None and len(known) > 0 for known in links),
    )
    return with_pair_scores(found, embedded_pool(documents, embedded)) if with_pairs or not found.scores else found


def embedded_pool(documents: DocumentSet, embedded: Sequence[EmbeddedDocument]) -> Pool:
    """Return the linked texts and images of documents, to retrieve one by the other."""
    texts, images = [each.texts for each in embedded], [each.images for each in embedded]
    return linked_pool(documents, texts, images, documents.links or ())


def with_pair_scores(evaluation: Evaluation, pool: Pool) -> Evaluation:
    """Return an evaluation with the scores of retrieval in its pool."""
    return replace(evaluation, pairs=score_pairs(pool))


def evaluate_matrices(
    ids: Sequence[str],
    matrices: Sequence[Matrix],
    links: Sequence[Links | None],
    *,
    sentence_numbers: Sequence[Int64] | None = None,
    where: str,
    may_be_unscored: bool = False,
) -> Evaluation:
    """Return the evaluation of similarity matrices against links.

    Args:
        ids: of the documents.
        matrices: n x m similarities of each.
        links: of each, or None where unknown.
        sentence_numbers: of each, the indices of its rows' sentences; None: the rows are all its sentences.
        where: what is evaluated, for messages.
        may_be_unscored: whether there may be no document with some linked and some unlinked pairs.

    Raises:
        UsageError: no document can be scored.
    """
    found = score_documents(matrices, links)
    counts = {
        "links unknown": found.unknown,
        "no link": found.without_links,
        FULLY_LINKED: found.fully_linked,
    }
    left_out = {reason: count for reason, count in counts.items() if count}
    if not found.scores and not may_be_unscored:
        raise _nothing_to_score(where, counts)
    chance = score_documents((random_scores(i, *m.shape) for i, m in zip(ids, matrices, strict=True)), links)
    return Evaluation(
        ids=tuple(ids),
        matrices=tuple(matrices),
        links=tuple(None if known is None else np.asarray(known, np.int64).reshape(-1, 2) for known in links),
        sentence_numbers=tuple(sentence_numbers or (np.arange(len(matrix)) for matrix in matrices)),
        scored=found.documents,
        scores=found.scores,
        link_means=_means(found) if found.scores else None,
        random_means=_means(chance) if found.scores else None,
        left_out=left_out,
        where=where,
    )


def read_documents(model: LinkModel, lake: Lake, reference: str, split: Split | str) -> DocumentSet:
    """Return the documents of a split with their links and the vectors the model reads.

    Raises:
        NotFoundError: the data set, version or split is not there.
        UsageError: the data set version has no such vectors.
    """
    manifest, folder = read_manifest(lake, reference)
    return read_for_model(model.card.config, model.card.data, manifest, folder, split, with_links=True)


def _means(scores: LinkScores) -> MeanScores:
    return MeanScores(*(mean_interval(column) for column in scores.table().T))


def _nothing_to_score(where: str, left_out: Mapping[str, int]) -> UsageError:
    counts = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
    return UsageError(f"{where}: expected documents with some linked and some unlinked pairs, found none ({counts})")
