"""Records of JSON Lines, with their types: documents that a user wrote.

{"id": "cat-1", "language": "en", "split": "train",
 "sentences": ["A cat sleeps.", {"text": "Two cats", "role": "caption"}],
 "images": ["cats/1.jpg", {"path": "cats/2.jpg", "after_sentence": 0}, {"url": "https://example.org/3.jpg"}],
 "links": [[0, 0], [1, 1]]}
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeVar

import msgspec

from pipelines.sources.records import (
    CandidateDocument,
    FieldError,
    file_name,
    identifier,
    linked,
    metadata,
    number,
    on_web,
    rejected,
    sentence,
    stated,
    unusable,
    web_url,
)
from schemas.document_rows import is_placed
from schemas.documents import UNDETERMINED, Provenance, Role, Split, numbers_of
from schemas.failures import Failure, Reason
from schemas.metadata import Metadata
from schemas.tables import clean

T = TypeVar("T")
# What other programs call a field.
_OTHER_NAMES: Mapping[str, Sequence[str]] = {
    "sentences": ("sentence", "texts", "text", "captions", "caption", "paragraphs", "body", "conversations"),
    "images": ("image", "image_paths", "pictures", "photos", "files", "file_name"),
    "text": ("sentence", "caption", "value"),
    "path": ("file", "file_name", "filename", "image", "src"),
}


class _Sentence(msgspec.Struct):
    text: str
    role: Role = Role.SENTENCE


class _Image(msgspec.Struct):
    path: str | None = None
    url: str | None = None
    licence: str | None = None


class _Record(msgspec.Struct):
    sentences: list[str | _Sentence]
    images: list[Any]
    links: list[tuple[int, int]] | None = None
    language: str | None = None
    split: Split | None = None
    url: str | None = None
    licence: str | None = None


_WORDS = {
    ", got": ", found", "`array`": "a list", "`str | object`": "text or an object", "`object`": "an object",
    "`str | null`": "text", "`str`": "text", "`int`": "a whole number", "`float`": "a fraction",
    "`bool`": "true or false", "`null`": "null", "`array | null`": "a list",
}  # fmt: skip
_KNOWN = {field for kind in (_Sentence, _Image, _Record) for field in kind.__struct_fields__}


@dataclass(frozen=True, slots=True)
class _Shown:
    """What a record says of an image; of one that cannot be used, its address says why."""

    uri: str
    licence: str | None = None
    metadata: Metadata | None = None
    after: int | None = None


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
    row = _typed(record, _Record, "")
    texts = [
        sentence(clean(each)) if isinstance(each, str) else sentence(clean(each.text), each.role)
        for each in row.sentences
    ]
    is_kept = [bool(each.text) for each in texts]
    images = [_image(item, index, is_kept, folder) for index, item in enumerate(row.images)]
    pairs = row.links or []
    links, lost = linked(pairs, is_kept, [True] * len(images))
    after = tuple(image.after for image in images)
    document = CandidateDocument(
        id=record_id,
        dataset=dataset,
        sentences=tuple(text for text in texts if text.text),
        image_uris=tuple(image.uri for image in images),
        links=None if row.links is None or (pairs and not links) else links,
        provenance=Provenance(dataset, record_id, _text(row.url), _text(row.licence)),
        language=_text(row.language) or UNDETERMINED,
        split=row.split,
        image_licences=stated(image.licence for image in images),
        image_metadata=stated(image.metadata for image in images),
        after_sentence=after if is_placed(after) else (),
        sentence_numbers=numbers_of(index for index, kept in enumerate(is_kept) if kept),
    )
    if document.sentences and document.image_uris:
        yield document
    else:
        found = f"{len(document.sentences)} sentences and {len(images)} images"
        yield rejected(record_id, Reason.EMPTY_DOCUMENT, f"expected one of each at least, found {found}")
    for index, kept in enumerate(is_kept):
        if not kept:
            yield rejected(record_id, Reason.EMPTY_SENTENCE, f"sentence {index} is blank")
    for message in lost:
        yield rejected(record_id, Reason.BAD_LINK, message)


def _text(value: str | None) -> str | None:
    return clean(value or "").strip() or None


def _typed(value: object, kind: type[T], where: str) -> T:
    """Return a value of JSON as a type.

    Raises:
        FieldError: MISSING_FIELD, with the field that was meant where one has a similar name; BROKEN_RECORD.
    """
    if isinstance(value, dict):
        value = {name: each for name, each in value.items() if each is not None}  # null is as good as absent
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as problem:
        message, _, at = str(problem).partition(" - at ")
        at = f"{where}{at.strip('`').removeprefix('$').removeprefix('' if where else '.')}"
        missing = message.partition("missing required field `")[2].partition("`")[0]
        if not missing or not isinstance(value, dict):
            kinds = {"split": Split, "role": Role}.get(at.rpartition(".")[2]) if "enum" in message else None
            expected = f"; expected one of {', '.join(kinds)}" if kinds else ""
            raise FieldError(Reason.BROKEN_RECORD, f"{at or 'a record'}: {_plain(message)}{expected}") from problem
        known = {*(_Sentence if at else _Record).__struct_fields__}
        keys = {*value} if not at else {key for part in value["sentences"] if isinstance(part, dict) for key in part}
        message = f"{f'{at}: ' if at else ''}expected the field '{missing}', found {similar(missing, keys - known)}"
        raise FieldError(Reason.MISSING_FIELD, message) from problem


def _plain(message: str) -> str:
    """Return a message of msgspec's in this project's words.

    >>> _plain("Expected `array`, got `str`")
    'expected a list, found text'
    """
    for code, word in _WORDS.items():
        message = message.replace(code, word)
    return message[:1].lower() + message[1:]


def similar(missing: str, there: Iterable[str]) -> str:
    """Return what was found in place of a field: the name that it was meant by, where one looks like that."""
    names = sorted(map(str, there))
    known = [name for name in _OTHER_NAMES.get(missing, ()) if name in names]
    meant = get_close_matches(missing, names, n=1, cutoff=0.75) or known
    return f"'{meant[0]}'; did you mean '{missing}'?" if meant else "none"


def _image(item: object, index: int, is_kept: Sequence[bool], folder: str) -> _Shown:
    try:
        if isinstance(item, str):
            item = {"url" if on_web(item) else "path": item}
        image = _typed(item, _Image, f"images[{index}]")
        fields: dict[str, Any] = item  # type: ignore[assignment]  # it was an object
        return _Shown(_uri(image, fields, folder), _text(image.licence), metadata(fields), _after(fields, is_kept))
    except FieldError as problem:
        return _Shown(unusable(problem))


def _uri(image: _Image, fields: Mapping[str, Any], folder: str) -> str:
    if (image.path is None) == (image.url is None):
        found = similar("path", fields.keys() - _KNOWN) if image.path is None else "path and url"
        raise FieldError(Reason.MISSING_FIELD, f"an image: expected 'path' or 'url', found {found}")
    if image.path is None:
        return web_url(image.url, "an image")
    name = file_name(image.path, "an image's path")
    return name if name.startswith("/") or not folder else f"{folder}/{name}"


def _after(fields: Mapping[str, Any], is_kept: Sequence[bool]) -> int | None:
    """Return how many of the sentences that are kept stand before an image; None where the file does not say."""
    if fields.get("after_sentence") is None:
        return None
    after = number(fields, "after_sentence")
    if after > len(is_kept):
        found = f"found {after}, the document has {len(is_kept)} sentences"
        raise FieldError(Reason.BROKEN_RECORD, f"an image's after_sentence: {found}")
    return sum(is_kept[:after])
