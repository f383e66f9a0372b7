"""How well a model finds the links of a split: scores of each document, their means, and random's on the same ones.

A model is evaluated on a data set version (`evaluate_model`); matrices that were made elsewhere come from a file
(`score_files.py`). Drawing a report of an `Evaluation` is `report.py`'s, comparing two `bootstrap.py`'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import numpy.typing as npt

from schemas.documents import Split
from schemas.errors import ConfigError, UsageError
from schemas.lake import Folder, Lake
from schemas.manifest import Manifest, read_manifest
from training.baselines.random import random_scores
from training.data.documents import DocumentSet, take_regions
from training.data.reading import Unreadable, read_split
from training.data.roles import TextView
from training.evaluation.bootstrap import Interval, mean_interval
from training.evaluation.links import Links, LinkScore, LinkScores, Matrix, score_documents
from training.evaluation.pair_scores import PairMeans, PairScores, linked_pool, score_pairs
from training.evaluation.retrieval import Pool
from training.fitting import inputs_of
from training.model import DocumentInput, EmbeddedDocument, LinkModel, ModelCard

DOCUMENTS_AT_ONCE = 64
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
        links: (sentence, image) links of each, or None where unknown.
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
    links: tuple[npt.NDArray[np.int64] | None, ...]
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
    embedded = tuple(embedded_documents(model, documents))
    return evaluate_embedded(documents, embedded, where=f"{reference}, split {split}", with_pairs=with_pairs)


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
    where: str,
    may_be_unscored: bool = False,
) -> Evaluation:
    """Return the evaluation of similarity matrices against links.

    Args:
        ids: of the documents.
        matrices: n x m similarities of each.
        links: of each, or None where unknown.
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
    return read_for_model(model.card, *read_manifest(lake, reference), split, with_links=True)


def read_for_model(
    card: ModelCard,
    manifest: Manifest,
    folder: Folder,
    split: Split | str,
    *,
    with_links: bool = False,
    shards: Sequence[int] | None = None,
    unreadable: list[Unreadable] | None = None,
) -> DocumentSet:
    """Return documents of a split, or of some of its shards, with the vectors that a model reads; see `read_split`.

    Raises:
        NotFoundError: the split is not there.
        UsageError: the data set version has no such vectors.
    """
    data = card.data
    try:
        return read_split(
            manifest,
            folder,
            split,
            image_features=data.image_features,
            sentence_features=data.sentence_features,
            region_features=data.region_features,
            with_links=with_links,
            with_jpegs=inputs_of(card.config).jpegs,
            view=TextView.of(card.config),
            shards=shards,
            unreadable=unreadable,
        )
    except ConfigError as problem:
        columns = (data.image_features, data.sentence_features, data.region_features)
        wanted = " and ".join(name for name in columns if name)
        raise UsageError(
            f"{manifest.dataset}@{manifest.version} has not the features the model reads ({wanted}): {problem}; "
            "build the data set with these extractors, or evaluate a model trained on the ones it has"
        ) from problem


def similarity_matrices(model: LinkModel, documents: DocumentSet) -> Iterator[Matrix]:
    """Yield the n x m similarities of each document, in order."""
    for document in embedded_documents(model, documents):
        yield document.similarities()


def embedded_documents(model: LinkModel, documents: DocumentSet) -> Iterator[EmbeddedDocument]:
    """Yield the unit vectors of each document, in order."""
    given = document_inputs(model, documents)
    while batch := list(islice(given, DOCUMENTS_AT_ONCE)):
        yield from model.embed(batch)


def document_inputs(model: LinkModel, documents: DocumentSet) -> Iterator[DocumentInput]:
    """Yield each document as the model reads it, in order."""
    roles = model.card.config.encoder.sources
    for place in range(len(documents)):
        yield _input(documents, place, roles)


def _input(documents: DocumentSet, place: int, roles: tuple[str, ...]) -> DocumentInput:
    """Return a document as the model reads it; `roles` are those of fused texts."""
    sentences = slice(*documents.sentence_offsets[place : place + 2])
    images = documents.image_rows[slice(*documents.image_offsets[place : place + 2])]
    vectors, regions, jpegs = documents.sentence_vectors, documents.regions, documents.image_jpegs
    fused = documents.sources[sentences] if documents.sources is not None else None
    return DocumentInput(
        texts=documents.texts[sentences] if fused is None else (fused or ((),))[0],
        sentence_vectors=None if vectors is None else vectors[sentences],
        image_vectors=documents.image_bank[images],
        roles=None if fused is None else roles if fused else (),
        language=documents.languages[place] if documents.languages else None,
        regions=None if regions is None else take_regions(regions, images),
        jpegs=None if jpegs is None else [jpegs[row] for row in images],
    )


def _means(scores: LinkScores) -> MeanScores:
    return MeanScores(*(mean_interval(column) for column in scores.table().T))


def _nothing_to_score(where: str, left_out: Mapping[str, int]) -> UsageError:
    counts = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
    return UsageError(f"{where}: expected documents with some linked and some unlinked pairs, found none ({counts})")
