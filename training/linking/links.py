"""Which links a model predicts in a document: the best one-to-one assignment of its sentences and images.

As in figure 4 of Hessel 2019, the predicted edges are the matching that AP sums over. Every pair has a similarity, but
a table of all of them is not a prediction; and since a threshold on cosines would have to be tuned on ground truth,
which no model of this project is trained with, there is none beyond zero.

Links are written to Parquet: a file of a user's own, whole or not at all, or the bytes of a shard's file.

`LinkOptions` say how links are chosen and what they carry: the same from the command line to the linker.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.csv import CSVWriter

from schemas.failures import Failure, Reason, Stage
from schemas.lake import Folder
from schemas.messages import IntegrityError, UsageError
from schemas.tables import records_table
from training.data.documents import DocumentSet, GivenDocument
from training.data.ragged import Floats, Int64
from training.link_steps import LinkSteps
from training.linking.records import LINK_SCHEMA, PredictedLink, PredictedRelation
from training.metrics.calibration import Calibration, word_of
from training.metrics.relations import RelationPredictor
from training.model import EmbeddedDocument, LinkModel
from training.similarity.similarity import predicted_pairs

DOCUMENTS_AT_ONCE = 64
ROWS_AT_ONCE = 65_536
COMPRESSION, FITTED = "zstd", b"multilink.fitted"
CHOSEN_HERE = "the model's steps were chosen on these documents, and its probabilities are of others"
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOptions:
    """Options of links, with the values that links have without any.

    A new option is a field here and of `LinksSettings` (`orchestration/config.py`), a parameter of `link_settings`
    (`orchestration/commands/options.py`), and an entry of `decisive` where it changes which links there are.

    Attributes:
        precision: share of links, 0 to 1, that is to be true: links below the calibration's threshold are left out.
        calibration: gives links their probability; None: the model's own, where it has one.
        fit: whether a user's documents, where they are many enough, choose the weights of the model's steps.
        is_of_model: whether the calibration is the model's own, which holds for the data set it was fitted on. Who
            names another one answers for it.
    """

    precision: float | None = None
    fit: bool = True
    calibration: Calibration | None = None
    is_of_model: bool = False

    def calibrated(self, own: Calibration | None) -> LinkOptions:
        """Return the options with a model's own calibration, where they have none."""
        return self if self.calibration else replace(self, calibration=own, is_of_model=True)

    def outside(self, dataset: str, shape: tuple[int, int] | None = None) -> str:
        """Return why links have a word and no probability (`Calibration.outside`); empty: they have one, or neither."""
        calibration = self.calibration
        return (
            ""
            if calibration is None
            else calibration.outside(dataset if self.is_of_model else calibration.dataset, shape)
        )

    @property
    def can_fit(self) -> bool:
        """Return whether steps may be chosen on the documents that are linked.

        What is asked for, a precision or a calibration of its own, holds for similarities by the model's own steps.
        """
        is_asked_for = self.calibration is not None and not self.is_of_model
        return self.fit and self.precision is None and not is_asked_for

    def threshold(self, uri: str) -> float:
        """Return the similarity below which links of the model at an address are left out.

        Raises:
            UsageError: there is a precision, and no calibration, or none of its thresholds reaches it.
        """
        if self.precision is None:
            return -np.inf
        if self.calibration is None:
            raise UsageError(
                f"--precision {self.precision:g}: {uri} has no calibration; `multilink evaluate` makes one where the "
                "data set it was trained on has validation links, or give one with --calibration"
            )
        return self.calibration.threshold(self.precision)

    def decisive(self) -> dict[str, Any]:
        """Return what decides which links there are, JSON-ready, for fingerprints."""
        return {
            "calibration": None if self.calibration is None else self.calibration.to_json(),
            "precision": self.precision,
            "is_of_model": self.is_of_model,
        }


DEFAULT_OPTIONS = LinkOptions()


@dataclass(frozen=True, slots=True)
class LinkedDocument:
    """A document's predicted links, the most similar first.

    Attributes:
        id: of the document.
        sentence_numbers: of the n sentences that the model reads, their indexes in a data set's document, their
            numbers (`schemas.documents`) in a user's; of fused sentences the first.
        similarities: n x m of those with the document's images: cosines, or what the model's steps make of them.
        links: the predicted links, by the same.
        image_numbers: of a user's m images.
        given: the document itself, where it is a user's.
        confidence: mean of what the calibration makes of its links, without one of their similarities; None: no link.
        caution: why its links have a word and no probability; empty: they have one, or there is no calibration.
        vectors: of the document; what its similarities are made of is computed from them where it is shown.
    """

    id: str
    sentence_numbers: Int64
    similarities: Floats
    links: tuple[PredictedLink, ...]
    image_numbers: Sequence[int] = ()
    given: GivenDocument | None = None
    confidence: float | None = None
    caution: str = ""
    vectors: EmbeddedDocument | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Linker:
    """A model that links documents, whether they come from a data set, from a file or over HTTP.

    Attributes:
        model: predicts.
        uri: its address, with its version; it is part of every link.
        options: how links are chosen, and what they carry; without a calibration they have no probability.
        dataset: NAME or NAME@VERSION that the documents are of; empty: a user's own.
        steps: in place of the model's.

    Raises:
        UsageError: the model cannot link with these options.
    """

    model: LinkModel
    uri: str
    options: LinkOptions = DEFAULT_OPTIONS
    dataset: str = ""
    steps: LinkSteps | None = None

    def __post_init__(self) -> None:
        self.options.threshold(self.uri)

    def link_given(self, given: Iterable[GivenDocument | Failure]) -> Iterator[LinkedDocument | Failure]:
        """Yield each of a user's documents with its predicted links, or why it has none; a few are in memory at a time.

        A document that lacks what the model reads, or whose vectors are not finite, is a failure. Failures that are
        given come before the documents of their batch.
        """
        remaining = iter(given)
        while batch := list(islice(remaining, DOCUMENTS_AT_ONCE)):
            yield from (each for each in batch if isinstance(each, Failure))
            documents = [each for each in batch if isinstance(each, GivenDocument)]
            outcomes = self._link(documents, [each.id for each in documents], self.model.read)
            for each, document in zip(outcomes, documents, strict=True):
                yield _named(each, document) if isinstance(each, LinkedDocument) else each

    def link_set(self, documents: DocumentSet) -> Iterator[LinkedDocument | Failure]:
        """Yield each document of a data set, as the model reads it, with its predicted links, or why it has none."""
        for start in range(0, len(documents), DOCUMENTS_AT_ONCE):
            batch = range(start, min(start + DOCUMENTS_AT_ONCE, len(documents)))
            yield from self._link(batch, documents.ids[start : batch.stop], documents.take_documents)

    def _link(
        self, batch: Sequence[T], ids: Sequence[str], read: Callable[[Sequence[T]], DocumentSet]
    ) -> list[LinkedDocument | Failure]:
        """Return the links of some documents.

        Where the batch as a whole is refused, each document is linked by itself: one bad document costs no other.
        """
        try:
            documents = read(batch)
            embedded = self.model.embed(documents, self.steps)
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
        rows, columns = by_similarity(matrix, *self._chosen(matrix))
        columns_of: dict[str, list[Any]] = {"sentence": sentence_numbers[rows].tolist(), "image": columns.tolist()}
        columns_of["similarity"] = matrix[rows, columns].tolist()
        sureness, caution = columns_of["similarity"], ""
        if self.options.calibration is not None:
            sureness = self.options.calibration.of_links(matrix, rows, columns).tolist()
            caution = CHOSEN_HERE if self.steps else self.options.outside(self.dataset, matrix.shape)
            columns_of |= {"word": list(map(word_of, sureness))} if caution else {"probability": sureness}
        if self.model.relations is not None:
            predictor = RelationPredictor.of(self.model)
            columns_of["relations"] = [
                tuple(map(PredictedRelation, predictor.names, probabilities))
                for probabilities in predictor.pairs(vectors.texts[rows], vectors.images[columns]).tolist()
            ]
        links = (
            PredictedLink(document=document, rank=rank, model=self.uri, **dict(zip(columns_of, values, strict=True)))
            for rank, values in enumerate(zip(*columns_of.values(), strict=True), start=1)
        )
        confidence = sum(sureness) / len(sureness) if sureness else None
        return LinkedDocument(
            id=document,
            sentence_numbers=sentence_numbers,
            similarities=matrix,
            links=tuple(links),
            confidence=confidence,
            caution=caution,
            vectors=vectors,
        )

    def pairs(self, vectors: EmbeddedDocument) -> tuple[Int64, Int64]:
        """Return the rows and columns of a document's links."""
        return self._chosen(vectors.similarities())

    def _chosen(self, matrix: Floats) -> tuple[Int64, Int64]:
        rows, columns = predicted_pairs(matrix)
        kept = matrix[rows, columns] >= self.options.threshold(self.uri)
        return rows[kept], columns[kept]


def _named(linked: LinkedDocument, document: GivenDocument) -> LinkedDocument:
    """Return a user's linked document; its links carry the texts and images that they are of, and go by numbers."""
    images = document.image_numbers or range(len(document.image_vectors))
    sentences = document.sentence_numbers or range(len(document.texts))
    sources: Sequence[str | None] = document.sources or [None] * len(images)
    named = (replace(link, text=document.texts[link.sentence], source=sources[link.image]) for link in linked.links)
    return replace(
        linked,
        sentence_numbers=np.asarray(sentences, np.int64)[linked.sentence_numbers],
        links=tuple(numbered(named, sentences, images)),
        image_numbers=images,
        given=document,
    )


def numbered(
    links: Iterable[PredictedLink], sentences: Sequence[int], images: Sequence[int]
) -> Iterator[PredictedLink]:
    """Yield links that go by indexes with the numbers of their sentences and images."""
    for link in links:
        yield replace(link, sentence=sentences[link.sentence], image=images[link.image])


def by_similarity(matrix: Floats, rows: Int64, columns: Int64) -> tuple[Int64, Int64]:
    """Return linked rows and columns of n x m similarities, the most similar first."""
    order = np.lexsort((columns, rows, -matrix[rows, columns]))
    return rows[order], columns[order]


def _failure(document: str, reason: Reason, message: str, exception: str | None = None) -> Failure:
    return Failure(Stage.LINKING, document, reason, message, exception)


def write_links(links: Iterable[PredictedLink], path: Path, *, note: str = "") -> int:
    """Write links to a file, replacing what is there once all are written; return how many there are.

    A file whose name ends in `.csv`, `.jsonl` or `.ndjson` is CSV, with relations as JSON, or JSON Lines. Any other is
    Parquet, with a note in its metadata, as `multilink.fitted`.
    """
    remaining, count = iter(links), 0
    schema = LINK_SCHEMA.with_metadata({**LINK_SCHEMA.metadata, FITTED: note}) if note else LINK_SCHEMA
    for left in path.parent.glob(f".{path.name}.*.tmp"):  # by a program that was killed
        left.unlink(missing_ok=True)
    with Folder(str(path.parent)).create(path.name) as sink:
        with _writer(path.suffix.lower(), sink.stream, schema) as write:
            while batch := list(islice(remaining, ROWS_AT_ONCE)):
                write(records_table(batch, LINK_SCHEMA).replace_schema_metadata(schema.metadata))
                count += len(batch)
        sink.commit()
    return count


@contextmanager
def _writer(ending: str, stream: BinaryIO, schema: pa.Schema) -> Iterator[Callable[[pa.Table], object]]:
    """Give what writes tables of links to a stream, in the format of a file's ending."""
    if ending in (".jsonl", ".ndjson"):
        yield lambda table: stream.writelines(f"{_json(row)}\n".encode() for row in table.to_pylist())
    elif ending == ".csv":
        place = schema.get_field_index("relations")
        field = pa.field("relations", pa.string())
        with CSVWriter(stream, schema.set(place, field)) as lines:
            yield lambda table: lines.write(
                table.set_column(place, field, pa.array(map(_json, table[place].to_pylist()), pa.string()))
            )
    else:
        with pq.ParquetWriter(stream, schema, compression=COMPRESSION) as writer:
            yield writer.write_table


def _json(value: object) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)


def parquet_bytes(table: pa.Table) -> bytes:
    """Return a table as a Parquet file."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression=COMPRESSION)
    return buffer.getvalue()
