"""Records of JSON Lines, with their types: documents that a user wrote.

{"id": "cat-1", "language": "en", "split": "train",
 "sentences": ["A cat sleeps.", {"text": "Two cats", "role": "caption"}],
 "images": ["cats/1.jpg", {"path": "cats/2.jpg", "after_sentence": 0}, {"url": "https://example.org/3.jpg"}],
 "links": [[0, 0], [1, 1]]}
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from pipelines.embedded import on_web
from pipelines.sources.fields import Number, identifier, meant, metadata, misspelt, typed
from pipelines.sources.records import (
    CandidateDocument,
    CandidateImage,
    FieldError,
    file_name,
    linked,
    rejected,
    sentence,
    unusable,
    web_url,
)
from schemas.documents import UNDETERMINED, Provenance, Role, Split, numbers_of
from schemas.failures import Failure, Reason
from schemas.metadata import Metadata


class _Sentence(msgspec.Struct):
    text: str
    role: Role = Role.SENTENCE


class _Image(msgspec.Struct):
    path: str | None = None
    url: str | None = None
    licence: str | None = None
    after_sentence: Number | None = None


class _Record(msgspec.Struct):
    sentences: list[str | _Sentence]
    images: list[Any]
    id: Any = None
    links: list[tuple[int, int]] | None = None
    language: str | None = None
    split: Split | None = None
    url: str | None = None
    licence: str | None = None


def identity(record: Mapping[str, Any]) -> str | None:
    """Return the id of a record; None where it has none."""
    return None if record.get("id") is None else identifier(record)


def read_row(
    record: Mapping[str, Any], record_id: str, *, dataset: str, folder: str
) -> Iterator[CandidateDocument | Failure]:
    """Yield the document of a record, or why there is none, then the failures of its parts.

    Args:
        record: an object of JSON.
        record_id: its id.
        dataset: name of the data set.
        folder: what paths of images are relative to, relative to their root; "": the root.

    Raises:
        FieldError: a field is absent, or has another type.
    """
    row = typed(record, _Record)
    texts = [sentence(each) if isinstance(each, str) else sentence(each.text, each.role) for each in row.sentences]
    is_kept = [bool(each.text) for each in texts]
    images = tuple(_image(item, f"$.images[{index}]", is_kept, folder) for index, item in enumerate(row.images))
    links, lost = linked(row.links or [], is_kept, [True] * len(images))
    document = CandidateDocument(
        id=record_id,
        dataset=dataset,
        sentences=tuple(text for text in texts if text.text),
        images=images,
        links=None if row.links is None or (row.links and not links) else links,
        provenance=Provenance(dataset, record_id, _text(row.url), _text(row.licence)),
        language=_text(row.language) or UNDETERMINED,
        split=row.split,
        sentence_numbers=numbers_of(index for index, kept in enumerate(is_kept) if kept),
    )
    if document.sentences and images:
        yield document
    else:
        found = f"{len(document.sentences)} sentences and {len(images)} images"
        yield rejected(record_id, Reason.EMPTY_DOCUMENT, f"expected one of each at least, found {found}")
    for index, kept in enumerate(is_kept):
        if not kept:
            yield rejected(record_id, Reason.EMPTY_SENTENCE, f"sentence {index} is blank")
    for message in lost:
        yield rejected(record_id, Reason.BAD_LINK, message)
    yield from misspelt(record, _Record, record_id=record_id)
    for index, item in enumerate(record["images"]):
        yield from misspelt(item, _Image, Metadata, record_id=record_id, where=f"$.images[{index}]")


def _text(value: str | None) -> str | None:
    return (value or "").strip() or None


def _image(item: object, where: str, is_kept: Sequence[bool], folder: str) -> CandidateImage:
    """Return an image; of one that cannot be used, its address says why."""
    try:
        if isinstance(item, str):
            item = {"url" if on_web(item) else "path": item}
        image = typed(item, _Image, where)
        uri, about = _uri(image, item, where, folder), metadata(item, where)
        if (after := image.after_sentence) is not None and after > len(is_kept):
            found = f"got {after}, the document has {len(is_kept)} sentences"
            raise FieldError(Reason.BROKEN_RECORD, f"{where}.after_sentence: {found}")
        return CandidateImage(uri, None, _text(image.licence), about, None if after is None else sum(is_kept[:after]))
    except FieldError as problem:
        return CandidateImage(unusable(problem))


def _uri(image: _Image, item: Any, where: str, folder: str) -> str:
    if (image.path is None) == (image.url is None):
        found = "path and url" if image.path else meant("path", item.keys() - {*_Image.__struct_fields__})
        raise FieldError(Reason.MISSING_FIELD, f"{where}: expected the field 'path' or 'url', found {found}")
    if image.url is not None:
        return web_url(image.url, f"{where}.url")
    name = file_name(image.path, f"{where}.path")
    return name if name.startswith("/") or not folder else f"{folder}/{name}"
