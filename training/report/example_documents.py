"""Example documents as they are read: from an evaluation or a model, and from the data set's shards.

`examples.py` says which are worth showing and how one is drawn; here are their sentences, pictures and concepts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.documents import Split
from schemas.features import FeatureColumn, FeatureKind
from schemas.lake import Folder
from schemas.manifest import FileEntry, Manifest
from schemas.parts import read_part, split_parts
from training.data.loading import read_for_model
from training.data.ragged import Floats, Int64
from training.evaluation.evaluate import Evaluation
from training.metrics.spread import spread
from training.model import LinkModel
from training.report.examples import ExampleDocument, ExampleGroup, choose_examples, main_concepts
from training.similarity.assignment import predicted_pairs

EXAMPLES_EACH = 2


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of a document beside its shard.

    Attributes:
        matrix: n x m similarities of the sentences that are read and the images.
        sentence_numbers: indices of those n sentences in the document.
        links: L x 2 (row of the matrix, image), or None where they are not known.
        auc: in percent, or None.
    """

    matrix: Floats
    sentence_numbers: Int64
    links: Int64 | None
    auc: float | None = None


@dataclass(frozen=True, slots=True)
class Widest:
    """A document with the spread of its images and of its sentences (Hessel 2019, 4.1)."""

    shown: ExampleDocument
    image_spread: float
    text_spread: float

    def to_json(self) -> dict[str, Any]:
        links = [list(link) for link in self.shown.predicted]
        spreads = {"image_spread": self.image_spread, "text_spread": self.text_spread}
        return {"id": self.shown.id, **spreads, "predicted": links}


def example_groups(
    evaluation: Evaluation,
    manifest: Manifest,
    folder: Folder,
    split: Split | str,
    *,
    regions: str | None = None,
    each: int = EXAMPLES_EACH,
) -> tuple[ExampleGroup, ...]:
    """Return the best, typical and worst documents with their pictures, predicted and true links.

    Args:
        evaluation: of the split.
        manifest: of the data set version.
        folder: of it.
        split: that was evaluated.
        regions: detector whose labels are shown as concepts; None: none are.
        each: documents of a group.
    """
    chosen = choose_examples(evaluation.document_auc, each=each)
    auc, wanted = evaluation.document_auc, {document for ids in chosen.values() for document in ids}
    seen = {
        name: Seen(evaluation.matrices[row], evaluation.sentence_numbers[row], evaluation.links[row], auc=auc.get(name))
        for row, name in enumerate(evaluation.ids)
        if name in wanted
    }
    shown = _examples(seen, manifest, folder, split, regions)
    return tuple(ExampleGroup(title, tuple(shown[name] for name in names)) for title, names in chosen.items())


def widest_documents(
    model: LinkModel, manifest: Manifest, folder: Folder, split: Split | str, *, count: int
) -> Iterator[Widest]:
    """Yield the documents of the largest spread of images and sentences together, the widest first.

    Spreads are of the data set's own vectors that the model reads, else of the model's.
    """
    card = model.card
    documents = read_for_model(card.config, card.data, manifest, folder, split, with_truth=True)
    embedded = model.embed(documents)
    spreads = np.zeros((len(documents), 2))
    for row, (texts, images) in enumerate(zip(documents.sentences, documents.images, strict=True)):
        own, vectors = embedded[row], documents.sentence_vectors
        bank = documents.image_bank[documents.image_rows[images]]
        sides = bank if bank.shape[1] else own.images, own.texts if vectors is None else vectors[texts]
        spreads[row] = [spread(side) if len(side) else 0.0 for side in sides]
    order = np.argsort(-spreads.sum(axis=1), kind="stable")[:count].tolist()
    links = documents.links or (None,) * len(documents)
    seen = {
        documents.ids[row]: Seen(
            embedded[row].similarities(), documents.sentence_numbers[documents.sentences.rows(row)], links[row]
        )
        for row in order
    }
    shown = _examples(seen, manifest, folder, split, card.data.region_features)
    for row in order:
        yield Widest(shown[documents.ids[row]], *spreads[row].tolist())


def _examples(
    seen: Mapping[str, Seen], manifest: Manifest, folder: Folder, split: Split | str, regions: str | None
) -> dict[str, ExampleDocument]:
    """Return some documents by their ids."""
    column = FeatureColumn(name=regions or "", kind=FeatureKind.REGIONS, dimensions=0).column
    read = ["hash", "jpeg", *([] if regions is None else [f"{column}.list.element.label"])]
    shown: dict[str, ExampleDocument] = {}
    for documents_part, images_part in split_parts(manifest, split) if seen else ():
        rows = rows_of(folder, documents_part, ["id", "sentences", "images"], set(seen))
        pictures = {
            row["hash"]: row
            for row in rows_of(folder, images_part, read, {image["hash"] for row in rows for image in row["images"]})
        }
        for row in rows:
            images = [pictures[image["hash"]] for image in row["images"]]
            concepts = () if regions is None else tuple(map(main_concepts, (_labels(each[column]) for each in images)))
            shown[row["id"]] = _example(seen[row["id"]], row, [each["jpeg"] for each in images], concepts)
    return shown


def _labels(regions: list[dict[str, str]]) -> list[str]:
    return [region["label"] for region in regions]


def rows_of(folder: Folder, part: FileEntry, columns: list[str], wanted: set[str]) -> list[dict[str, Any]]:
    """Return the rows of a part whose first column is wanted; nothing is read where nothing is."""
    if not wanted:
        return []
    table = read_part(folder, part, columns)
    is_wanted = pc.is_in(table.column(columns[0]), value_set=pa.array(sorted(wanted), pa.string()))
    rows: list[dict[str, Any]] = table.filter(is_wanted).to_pylist()
    return rows


def _example(
    seen: Seen, row: dict[str, Any], jpegs: list[bytes | None], concepts: tuple[tuple[str, ...], ...]
) -> ExampleDocument:
    matrix, numbers, known = seen.matrix, seen.sentence_numbers, seen.links
    pairs = zip(*predicted_pairs(matrix), strict=True)
    return ExampleDocument(
        id=row["id"],
        auc=seen.auc,
        sentences=tuple(sentence["text"] for sentence in row["sentences"]),
        images=tuple(jpegs),
        predicted=tuple((int(numbers[s]), int(i), float(matrix[s, i])) for s, i in pairs),
        links=None if known is None else tuple((int(numbers[s]), int(i)) for s, i in known),
        concepts=concepts,
    )
