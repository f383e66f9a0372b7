"""Which links a model predicts in a document: the best one-to-one assignment of its sentences and images.

As in figure 4 of Hessel 2019, the predicted edges are the matching that AP sums over. Every pair has a similarity, but
a table of all of them is not a prediction; and since a threshold on cosines would have to be tuned on ground truth,
which this project never shows a model, there is none beyond zero.

Links are written to Parquet: a file of a user's own, whole or not at all, or the bytes of a shard's file.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from schemas.errors import IntegrityError, UsageError
from schemas.failures import Failure, Reason, Stage
from schemas.links import LINK_SCHEMA, PredictedLink, PredictedRelation
from schemas.tables import row_of, to_table
from training.data.documents import DocumentSet, GivenDocument
from training.data.ragged import Floats, Int64
from training.metrics.calibration import Calibration
from training.metrics.relations import RefineConfig, RelationPredictor
from training.model import EmbeddedDocument, LinkModel
from training.similarity.assignment import predicted_pairs

DOCUMENTS_AT_ONCE = 64
ROWS_AT_ONCE = 65_536
COMPRESSION = "zstd"
T = TypeVar("T")
_VALUES: Callable[[PredictedLink], tuple[Any, ...]] = attrgetter(*LINK_SCHEMA.names)


@dataclass(frozen=True, slots=True)
class LinkedDocument:
    """A document's predicted links, the most similar first.

    Attributes:
        id: of the document.
        sentence_numbers: indices in the document of the n sentences that the model reads; of fused sentences the first.
        similarities: n x m cosines of those with the document's images.
        links: the predicted links.
    """

    id: str
    sentence_numbers: Int64
    similarities: Floats
    links: tuple[PredictedLink, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Linker:
    """A model that links documents, whether they come from a data set, from a file or over HTTP.

    Attributes:
        model: predicts.
        uri: its address, with its version; it is part of every link.
        calibration: gives links their probability; None: they have none.
        precision: share of links, 0 to 1, that is to be true: links below the calibration's threshold are left out.
        refine: which links there are is decided by refined similarities (Alikhani 2022, eq. 4-6); links and documents
            keep the cosines. None: by the cosines. A model without relations has none to refine by.
    """

    model: LinkModel
    uri: str
    calibration: Calibration | None = None
    precision: float | None = None
    refine: RefineConfig | None = None

    def link_given(self, given: Iterable[GivenDocument]) -> Iterator[LinkedDocument | Failure]:
        """Yield each of a user's documents with its predicted links, or why it has none; a few are in memory at a time.

        A document that lacks what the model reads, or whose vectors are not finite, is a failure.
        """
        waiting = iter(given)
        while batch := list(islice(waiting, DOCUMENTS_AT_ONCE)):
            yield from self._link(batch, [document.id for document in batch], self.model.read)

    def link_set(self, documents: DocumentSet) -> Iterator[LinkedDocument | Failure]:
        """Yield each document of a data set, as the model reads it, with its predicted links, or why it has none."""
        for start in range(0, len(documents), DOCUMENTS_AT_ONCE):
            batch = range(start, min(start + DOCUMENTS_AT_ONCE, len(documents)))
            yield from self._link(batch, documents.ids[start : batch.stop], documents.take_documents)

    def _link(
        self, batch: Sequence[T], ids: Sequence[str], read: Callable[[Sequence[T]], DocumentSet]
    ) -> list[LinkedDocument | Failure]:
        """Return the links of some documents.

        Where the batch as a whole is refused, each document is asked for by itself: one bad document costs no other.
        """
        try:
            documents = read(batch)
            embedded = self.model.embed(documents)
        except (UsageError, IntegrityError) as problem:
            if len(batch) == 1:
                return [_failure(ids[0], Reason.UNREADABLE, str(problem), type(problem).__name__)]
            return [each for number, item in enumerate(batch) for each in self._link([item], [ids[number]], read)]
        rows = zip(ids, documents.sentences, embedded, strict=True)
        return [self._linked(key, documents.sentence_numbers[part], vectors) for key, part, vectors in rows]

    def _linked(self, document: str, sentence_numbers: Int64, vectors: EmbeddedDocument) -> LinkedDocument | Failure:
        matrix = vectors.similarities()
        if not np.isfinite(matrix).all():
            return _failure(document, Reason.NOT_FINITE, "its vectors are not finite")
        links = predicted_links(
            document, matrix, sentence_numbers, model_uri=self.uri, chosen_by=self._refined(matrix, vectors)
        )
        if self.model.relations is not None:
            links = with_relations(links, RelationPredictor.of(self.model), vectors, sentence_numbers)
        threshold = threshold_of(self.calibration, self.precision, self.uri)
        kept = calibrated([link for link in links if link.similarity >= threshold], self.calibration)
        return LinkedDocument(document, sentence_numbers, matrix, tuple(kept))

    def _refined(self, matrix: Floats, vectors: EmbeddedDocument) -> Floats:
        """Return the similarities by which links are chosen."""
        if self.refine is None or not matrix.size:
            return matrix
        refinement = self.refine.of(RelationPredictor.of(self.model), self.model.card.data.dataset)
        return refinement(matrix, vectors.texts, vectors.images)


def predicted_links(
    document: str,
    matrix: Floats,
    sentence_numbers: Int64,
    *,
    model_uri: str = "",
    chosen_by: Floats | None = None,
) -> list[PredictedLink]:
    """Return the links of one document, the most similar first.

    They are the maximum-weight matching of at most min(n, m) edges of the n x m matrix: each sentence and each image
    has at most one link, and no link has a similarity below zero.

    Args:
        document: its id.
        matrix: n x m similarities of the sentences that are read and the images.
        sentence_numbers: indices of those n sentences in the document.
        model_uri: address of the model.
        chosen_by: n x m similarities that the matching is of, where these are others.
    """
    rows, columns = predicted_pairs(matrix if chosen_by is None else chosen_by)
    weights = matrix[rows, columns]
    order = np.lexsort((columns, rows, -weights))
    return [
        PredictedLink(document, int(sentence_numbers[rows[e]]), int(columns[e]), float(weights[e]), rank, model_uri)
        for rank, e in enumerate(order, start=1)
    ]


def with_relations(
    links: list[PredictedLink], predictor: RelationPredictor, vectors: EmbeddedDocument, sentence_numbers: Int64
) -> list[PredictedLink]:
    """Return a document's links, each with the relations that the model predicts for its sentence and image."""
    row_of = {number: row for row, number in enumerate(sentence_numbers.tolist())}
    rows = np.array([row_of[link.sentence] for link in links], np.int64)
    columns = np.array([link.image for link in links], np.int64)
    found = predictor.pairs(vectors.texts[rows], vectors.images[columns]).tolist()
    return [
        replace(link, relations=tuple(map(PredictedRelation, predictor.names, probabilities)))
        for link, probabilities in zip(links, found, strict=True)
    ]


def threshold_of(calibration: Calibration | None, precision: float | None, model_uri: str) -> float:
    """Return the similarity below which links are left out.

    Raises:
        UsageError: a precision is wanted and there is no calibration, or none of its thresholds reaches it.
    """
    if precision is None:
        return -np.inf
    if calibration is None:
        raise UsageError(
            f"--precision {precision:g}: {model_uri} has no calibration; `multilink evaluate` makes one where the "
            "data set it was trained on has validation links, or give one with --calibration"
        )
    return calibration.threshold(precision)


def check_refined(model: LinkModel, refine: RefineConfig | None) -> None:
    """Raise a `UsageError` where links are to be chosen by relations and the model predicts none."""
    if refine is not None:
        RelationPredictor.of(model)


def _failure(document: str, reason: Reason, message: str, exception: str | None = None) -> Failure:
    return Failure(Stage.LINKING, document, reason, message, exception)


def calibrated(links: list[PredictedLink], calibration: Calibration | None) -> list[PredictedLink]:
    """Return links with their probability, where there is a calibration."""
    if calibration is None or not links:
        return links
    probabilities = calibration.probability(np.array([link.similarity for link in links])).tolist()
    return [replace(link, probability=value) for link, value in zip(links, probabilities, strict=True)]


def write_links(links: Iterable[PredictedLink], path: Path) -> int:
    """Write links to a Parquet file, replacing what is there once all are written; return how many there are."""
    waiting, count = iter(links), 0
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with pq.ParquetWriter(temporary, LINK_SCHEMA, compression=COMPRESSION) as writer:
            while batch := list(islice(waiting, ROWS_AT_ONCE)):
                writer.write_table(to_table(map(_row, batch), LINK_SCHEMA))
                count += len(batch)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return count


def links_file(links: Iterable[PredictedLink], note: Mapping[bytes, bytes]) -> bytes:
    """Return the Parquet file of some links, with a note in its metadata; the same links give the same bytes."""
    table = to_table(map(_row, links), LINK_SCHEMA)
    return parquet_bytes(table.replace_schema_metadata({**table.schema.metadata, **note}))


def _row(link: PredictedLink) -> dict[str, Any]:
    """Return a link as a row of its table: millions are written."""
    row = dict(zip(LINK_SCHEMA.names, _VALUES(link), strict=True))
    if link.relations is not None:
        row["relations"] = [row_of(relation) for relation in link.relations]
    return row


def parquet_bytes(table: pa.Table) -> bytes:
    """Return a table as a Parquet file."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression=COMPRESSION)
    return buffer.getvalue()
