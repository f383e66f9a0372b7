"""A user's own documents: JSON Lines beside image files or URLs, streamed.

    {"id": "cat-1", "language": "en", "split": "train",
     "sentences": ["A cat sleeps.", {"text": "Two cats", "role": "caption"}],
     "images": [{"path": "cats/1.jpg"}, {"url": "https://example.org/2.jpg"}],
     "links": [[0, 0], [1, 1]]}

`language`, `split` and `links` are optional, and so are `url` and `licence` of a document and `licence` of an image.
Other fields are passed over; absent or null links are unknown, `[]` says that there are none. An image path is relative
to the file's folder (or `source.images`) and stays as written, so that a data set does not depend on where that is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.sources.candidate import CandidateDocument, sentence, stated
from pipelines.sources.inputs import IMAGES, Input, needed
from pipelines.sources.records import (
    WEB,
    FieldError,
    checked,
    file_name,
    identifier,
    json_lines,
    optional,
    outcomes_of,
    required,
)
from schemas.documents import UNDETERMINED, Link, Provenance, Role, Sentence, Split
from schemas.failures import Failure, Reason, Stage

DATASET = "documents"


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentsSource:
    """A user's own documents: JSON Lines beside image files or URLs.

    Attributes:
        documents: path of the JSON Lines file.
        images: folder, tar or zip that image paths are relative to, or the URL of a folder; empty: what the file
            itself is in.
    """

    documents: str = ""
    images: str = ""

    def __post_init__(self) -> None:
        if self.documents.startswith(WEB) and not self.images:
            object.__setattr__(self, "images", self.documents.rpartition("/")[0])

    def inputs(self) -> tuple[Input, ...]:
        """Return the settings that name what is read."""
        return needed("documents", "documents.jsonl", "*.jsonl"), IMAGES


def read(source: DocumentsSource) -> Iterator[CandidateDocument | Failure]:
    """Yield the documents of a user's file; see `read_documents`."""
    yield from read_documents(source.documents)


def read_documents(address: str | Path) -> Iterator[CandidateDocument | Failure]:
    """Yield the documents of a file in order, and a failure for each record, sentence or link that cannot be used.

    A document is kept without the sentences that are blank (EMPTY_SENTENCE) and the links that lead nowhere
    (BAD_LINK); a failure is filed under the document's id, or `<file name>:<line>` where it has none.

    Raises:
        NotFoundError: there is no such file.
    """
    yield from outcomes_of(json_lines(address), _outcomes, identifier)


def _outcomes(record: Mapping[str, Any], record_id: str) -> Iterator[CandidateDocument | Failure]:
    """Yield the document of a record, or why there is none, then the failures of its parts."""
    sentences = [_sentence(item) for item in required(record, "sentences", list)]
    images: list[dict[str, Any]] = [checked(item, dict, "an image") for item in required(record, "images", list)]
    kept = {old: new for new, old in enumerate(index for index, text in enumerate(sentences) if text.text)}
    links, failures = _links(record.get("links"), len(sentences), len(images), kept)
    document = CandidateDocument(
        id=record_id,
        dataset=DATASET,
        sentences=tuple(sentences[index] for index in kept),
        image_uris=tuple(map(_image_uri, images)),
        links=links,
        provenance=Provenance(DATASET, record_id, optional(record, "url", "") or None, _licence(record)),
        language=optional(record, "language", "").strip() or UNDETERMINED,
        split=_member(Split, record["split"], "split") if record.get("split") is not None else None,
        image_licences=stated(map(_licence, images)),
    )
    if document.sentences and document.image_uris:
        yield document
    else:
        found = f"{len(document.sentences)} sentences and {len(images)} images"
        yield Failure(Stage.SOURCES, record_id, Reason.EMPTY_DOCUMENT, f"expected one of each at least, found {found}")
    for index in range(len(sentences)):
        if index not in kept:
            yield Failure(Stage.SOURCES, record_id, Reason.EMPTY_SENTENCE, f"sentence {index} is blank")
    for message in failures:
        yield Failure(Stage.SOURCES, record_id, Reason.BAD_LINK, message)


def _sentence(item: object) -> Sentence:
    if not isinstance(item, dict):
        return sentence(checked(item, str, "a sentence"))
    fields: dict[str, Any] = item
    return sentence(required(fields, "text", str), _member(Role, fields.get("role", Role.SENTENCE), "role"))


def _licence(fields: Mapping[str, Any]) -> str | None:
    return optional(fields, "licence", "").strip() or None


def _image_uri(fields: Mapping[str, Any]) -> str:
    given = [name for name in ("path", "url") if fields.get(name) is not None]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        raise FieldError(Reason.MISSING_FIELD, f"an image: expected 'path' or 'url', found {found}")
    if given == ["path"]:
        return file_name(fields["path"], "an image's path")
    url = required(fields, "url", str)
    if not url.startswith(WEB):
        raise FieldError(Reason.BROKEN_RECORD, f"an image: expected an http or https URL, found {url[:80]!r}")
    return url


def _links(
    items: object, sentences: int, images: int, kept: Mapping[int, int]
) -> tuple[tuple[Link, ...] | None, list[str]]:
    """Return the links between what is kept, each once, and what is wrong with each that leads nowhere."""
    if items is None:
        return None, []
    links: dict[Link, None] = {}
    problems: list[str] = []
    for item in checked(items, list, "links"):
        pair = checked(item, list, "a link")
        if len(pair) != 2:
            raise FieldError(Reason.BROKEN_RECORD, f"a link: expected [sentence, image], found {len(pair)} values")
        text, image = (checked(index, int, "a link's index") for index in pair)
        if not (0 <= text < sentences and 0 <= image < images):
            problems.append(f"link [{text}, {image}] leads outside {sentences} sentences and {images} images")
        elif text in kept:
            links[Link(kept[text], image)] = None
    return tuple(links), problems


def _member(kind: Any, value: object, name: str) -> Any:
    if value not in list(kind):
        raise FieldError(Reason.BROKEN_RECORD, f"{name}: expected one of {', '.join(kind)}, found {value!r:.60}")
    return kind(value)
