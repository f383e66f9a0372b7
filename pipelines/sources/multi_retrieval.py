"""The files Hessel 2019 released: documents whose images are rows of a feature array.

    docs.json     {"train": [[images, sentences, meta], ...], "val": ..., "test": ...}
                  image = [id, sentence index], sentence = [text, image index]; -1: no partner; null: unlabelled corpus
    id2row.json   {image id: row of features.npy}

The links of a document are the union of what both of its sides say. The feature array itself is not read here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipelines.config import MultiRetrievalSource
from pipelines.sources.candidate import CandidateDocument
from pipelines.sources.fields import FieldError, checked, clean
from pipelines.sources.json_streams import is_index, read_lists, read_mapping
from pipelines.sources.openings import BrokenInputError, Place
from schemas.documents import Link, Provenance, Sentence, Split
from schemas.failures import Failure, Reason, Stage

SOURCE = "multi-retrieval"
_NO_PARTNER = -1
_ID_KEYS = ("id", "doc_id", "document_id")


def read_source(source: MultiRetrievalSource) -> Iterator[CandidateDocument | Failure]:
    """Yield the drafts and failures of the released files."""
    yield from read_released(source.documents, source.id2row)


def read_released(documents: Place, id2row: Place) -> Iterator[CandidateDocument | Failure]:
    """Yield the released documents, split by split in file order, and a failure for each thing that cannot be used.

    A document is kept without the images that have no row (FEATURE_MISSING) and the links that lead nowhere
    (BAD_LINK). Its id is the one in its meta data where that is unique in the file, else `<split>-<index>`.

    Raises:
        BuildError: a file is not JSON of the published form.
        FileNotFoundError: there is no such file.
    """
    rows = read_mapping(id2row, is_index, expected="a row number")
    uses = Counter(own_id for _, record in _records(documents) if (own_id := _own_id(record)))
    counts: Counter[Split] = Counter()
    for split, record in _records(documents):
        if isinstance(record, BrokenInputError):
            yield record.failure(after=f"{counts.total()} documents")
            return
        own_id = _own_id(record)
        record_id = own_id if own_id is not None and uses[own_id] == 1 else f"{split}-{counts[split]}"
        counts[split] += 1
        yield from _read(record, record_id, split, rows)


def _records(documents: Place) -> Iterator[tuple[Split, object]]:
    """Yield the split and the record of each document; last, where the file is damaged, why it ends there."""
    split = Split.TRAIN
    try:
        for name, record in read_lists(documents, only=tuple(Split)):
            split = Split(name)
            yield split, record
    except BrokenInputError as problem:
        yield split, problem


@dataclass(slots=True)
class _Sides:
    """What the two sides of a document say; indices are the published ones."""

    image_ids: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    links: set[tuple[int, int]] = field(default_factory=set)
    is_labelled: bool = False

    def add_links(self, sentence: int, image: int, partner: object, side: str) -> None:
        if partner is None:
            return
        self.is_labelled = True
        if checked(partner, int, f"{side}'s partner") != _NO_PARTNER:
            self.links.add((sentence, image))


def _read(
    record: object, record_id: str, split: Split, rows: Mapping[str, int]
) -> Iterator[CandidateDocument | Failure]:
    """Yield the draft of a record, then the failures of its parts; or one failure."""
    try:
        sides = _sides(record)
        kept = [index for index, image_id in enumerate(sides.image_ids) if image_id in rows]
    except FieldError as problem:
        yield problem.failure(record_id)
        return
    links, failures = _links(sides, {old: new for new, old in enumerate(kept)}, record_id)
    yield CandidateDocument(
        id=record_id,
        dataset=SOURCE,
        sentences=tuple(Sentence(text) for text in sides.texts),
        image_uris=tuple(f"row:{rows[sides.image_ids[index]]}" for index in kept),
        links=links if sides.is_labelled else None,
        provenance=Provenance(SOURCE, record_id),
        split=split,
    )
    for index, image_id in enumerate(sides.image_ids):
        if image_id not in rows:
            message = f"expected a row of image {image_id!r}, found none in id2row"
            yield Failure(Stage.SOURCES, f"{record_id}#{index}", Reason.FEATURE_MISSING, message)
    yield from failures


def _sides(record: object) -> _Sides:
    """Return both sides of a record.

    Raises:
        FieldError: it is not `[images, sentences, meta]`.
    """
    parts = checked(record, list, "a document")
    if len(parts) < 2:
        raise FieldError(Reason.BROKEN_RECORD, f"expected [images, sentences, meta], found {len(parts)} values")
    sides = _Sides()
    for index, item in enumerate(checked(parts[0], list, "images")):
        image_id, partner = _pair(item, "an image")
        sides.image_ids.append(str(image_id))
        sides.add_links(_index(partner), index, partner, "an image")
    for index, item in enumerate(checked(parts[1], list, "sentences")):
        text, partner = _pair(item, "a sentence")
        sides.texts.append(checked(text, str, "a sentence's text"))
        sides.add_links(index, _index(partner), partner, "a sentence")
    return sides


def _links(sides: _Sides, new_image: Mapping[int, int], record_id: str) -> tuple[tuple[Link, ...], list[Failure]]:
    """Return the links between what is kept, in order, and a failure for each that leads nowhere."""
    links: list[Link] = []
    failures: list[Failure] = []
    for sentence, image in sorted(sides.links):
        if not (0 <= sentence < len(sides.texts) and 0 <= image < len(sides.image_ids)):
            size = f"{len(sides.texts)} sentences and {len(sides.image_ids)} images"
            message = f"link [{sentence}, {image}] leads outside {size}"
            failures.append(Failure(Stage.SOURCES, record_id, Reason.BAD_LINK, message))
        elif image in new_image:
            links.append(Link(sentence, new_image[image]))
    return tuple(links), failures


def _pair(item: object, what: str) -> tuple[Any, Any]:
    pair = checked(item, list, what)
    if len(pair) != 2:
        raise FieldError(Reason.BROKEN_RECORD, f"{what}: expected [content, partner], found {len(pair)} values")
    return pair[0], pair[1]


def _index(partner: object) -> int:
    return partner if isinstance(partner, int) else _NO_PARTNER


def _own_id(record: object) -> str | None:
    """Return the id in a record's meta data, which is an object with one, or the id itself."""
    meta = record[2] if isinstance(record, list) and len(record) > 2 else None
    if isinstance(meta, dict):
        meta = next((meta[key] for key in _ID_KEYS if meta.get(key)), None)
    if isinstance(meta, int) and not isinstance(meta, bool):
        return str(meta)
    return clean(meta) if isinstance(meta, str) and meta.strip() else None
