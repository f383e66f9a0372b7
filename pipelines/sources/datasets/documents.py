"""A user's own documents: JSON Lines beside image files or URLs, streamed.

    {"id": "cat-1", "language": "en", "split": "train",
     "sentences": ["A cat sleeps.", {"text": "Two cats", "role": "caption"}],
     "images": [{"path": "cats/1.jpg", "after_sentence": 0}, {"url": "https://example.org/2.jpg"}],
     "links": [[0, 0], [1, 1]]}

`id`, `language`, `split` and `links` are optional: without an id a document is called by its file and line
(`documents.jsonl:7`). So are `url` and `licence` of a document; of an image `licence`,
`after_sentence` (how many sentences of the document stand before it, `schemas.documents`) and metadata: `title`,
`caption`, `credit`, `rights`, `date`, `place`, `keywords` (`schemas.metadata`). Other fields are passed over; absent or
null links are unknown, `[]` says that there are none; where every one of them leads nowhere they are unknown. An image
path is relative to the file's folder (or `source.images`) and stays as written, so that a data set does not depend on
where that is. An image that cannot be used costs its document nothing else.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pipelines.recipe import EVERY_DOCUMENT, BuildConfig, without_limits
from pipelines.sources.inputs import IMAGES, Input
from pipelines.sources.records import (
    CandidateDocument,
    FieldError,
    checked,
    file_name,
    identifier,
    json_lines,
    linked,
    metadata,
    number,
    on_web,
    optional,
    outcomes_of,
    rejected,
    required,
    sentence,
    stated,
    unusable,
    web_url,
)
from pipelines.sources.source import Outcomes, Source
from schemas.document_rows import is_placed
from schemas.documents import UNDETERMINED, Provenance, Role, Sentence, Split, numbers_of
from schemas.failures import Failure, Reason
from schemas.metadata import Metadata

DATASET = "documents"


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentsSource(Source):
    """A user's own documents: JSON Lines beside image files or URLs.

    Attributes:
        documents: path of the JSON Lines file.
        images: folder, tar or zip that image paths are relative to, or the URL of a folder; empty: what the file
            itself is in.
    """

    inputs: ClassVar = (Input("documents", published=("documents.jsonl", "*.jsonl"), is_needed=True), IMAGES)
    documents: str = ""
    images: str = ""

    def __post_init__(self) -> None:
        Source.__post_init__(self)
        if on_web(self.documents) and not self.images:
            object.__setattr__(self, "images", self.documents.rpartition("/")[0])

    def read(self) -> Outcomes:
        """Yield the documents of a user's file; see `read_documents`."""
        return read_documents(self.documents)


def read_documents(address: str | Path) -> Iterator[CandidateDocument | Failure]:
    """Yield the documents of a file in order, and a failure for each record, sentence or link that cannot be used.

    A document is kept without the sentences that are blank (EMPTY_SENTENCE) and the links that lead nowhere
    (BAD_LINK); a failure is filed under the document's id, or `<file name>:<line>` where it has none.

    Raises:
        NotFoundError: there is no such file.
    """
    return outcomes_of(json_lines(address), _outcomes, _identity)


def _identity(record: Mapping[str, Any]) -> str | None:
    return None if record.get("id") is None else identifier(record)


def _outcomes(record: Mapping[str, Any], record_id: str) -> Iterator[CandidateDocument | Failure]:
    """Yield the document of a record, or why there is none, then the failures of its parts."""
    sentences = [_sentence(item) for item in required(record, "sentences", list)]
    listed = required(record, "images", list)
    pairs = [_pair(item) for item in optional(record, "links", list[object]())]
    is_kept = [bool(text.text) for text in sentences]
    images = [_image(item, is_kept) for item in listed]
    links, lost = linked(pairs, is_kept, [True] * len(images))
    after = tuple(image.after for image in images)
    document = CandidateDocument(
        id=record_id,
        dataset=DATASET,
        sentences=tuple(text for text in sentences if text.text),
        image_uris=tuple(image.uri for image in images),
        links=None if record.get("links") is None or (pairs and not links) else links,
        provenance=Provenance(DATASET, record_id, optional(record, "url", "") or None, _licence(record)),
        language=optional(record, "language", "").strip() or UNDETERMINED,
        split=None if record.get("split") is None else _member(Split, record["split"], "split"),
        image_licences=stated(image.licence for image in images),
        image_metadata=stated(image.metadata for image in images),
        after_sentence=after if is_placed(after) else (),
        sentence_numbers=numbers_of(index for index, text in enumerate(sentences) if text.text),
    )
    if document.sentences and document.image_uris:
        yield document
    else:
        found = f"{len(document.sentences)} sentences and {len(images)} images"
        yield rejected(record_id, Reason.EMPTY_DOCUMENT, f"expected one of each at least, found {found}")
    for index, text in enumerate(sentences):
        if not text.text:
            yield rejected(record_id, Reason.EMPTY_SENTENCE, f"sentence {index} is blank")
    for message in lost:
        yield rejected(record_id, Reason.BAD_LINK, message)


def _sentence(item: object) -> Sentence:
    if not isinstance(item, dict):
        return sentence(checked(item, str, "a sentence"))
    fields: dict[str, Any] = item
    return sentence(required(fields, "text", str), _member(Role, fields.get("role", Role.SENTENCE), "role"))


@dataclass(frozen=True, slots=True)
class _Image:
    """What a record says of an image; of one that cannot be used, its address says why."""

    uri: str
    licence: str | None = None
    metadata: Metadata | None = None
    after: int | None = None


def _image(item: object, is_kept: Sequence[bool]) -> _Image:
    try:
        fields: dict[str, Any] = checked(item, dict, "an image")
        return _Image(_image_uri(fields), _licence(fields), metadata(fields), _after_sentence(fields, is_kept))
    except FieldError as problem:
        return _Image(unusable(problem))


def _licence(fields: Mapping[str, Any]) -> str | None:
    return optional(fields, "licence", "").strip() or None


def _image_uri(fields: Mapping[str, Any]) -> str:
    given = [name for name in ("path", "url") if fields.get(name) is not None]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        raise FieldError(Reason.MISSING_FIELD, f"an image: expected 'path' or 'url', found {found}")
    return file_name(fields["path"], "an image's path") if given == ["path"] else web_url(fields["url"], "an image")


def _after_sentence(fields: Mapping[str, Any], is_kept: Sequence[bool]) -> int | None:
    """Return how many of the sentences that are kept stand before an image; None where the file does not say."""
    if fields.get("after_sentence") is None:
        return None
    after = number(fields, "after_sentence")
    if after > len(is_kept):
        found = f"found {after}, the document has {len(is_kept)} sentences"
        raise FieldError(Reason.BROKEN_RECORD, f"an image's after_sentence: {found}")
    return sum(is_kept[:after])


def _pair(item: object) -> tuple[int, int]:
    pair = checked(item, list, "a link")
    if len(pair) != 2:
        raise FieldError(Reason.BROKEN_RECORD, f"a link: expected [sentence, image], found {len(pair)} values")
    text, image = (checked(index, int, "a link's index") for index in pair)
    return text, image


def _member(kind: Any, value: object, name: str) -> Any:
    if value not in list(kind):
        raise FieldError(Reason.BROKEN_RECORD, f"{name}: expected one of {', '.join(kind)}, found {value!r:.60}")
    return kind(value)


def documents() -> BuildConfig:
    """A user's own documents: all that have a sentence and an image are kept, near-duplicates included."""
    return without_limits("documents", DocumentsSource(), EVERY_DOCUMENT)


RECIPES = {"documents": documents}
