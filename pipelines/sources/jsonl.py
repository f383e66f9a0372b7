"""A user's own documents: JSON Lines beside image files or URLs.

    {"id": "cat-1", "language": "en", "split": "train",
     "sentences": ["A cat sleeps.", {"text": "Two cats", "role": "caption"}],
     "images": [{"path": "cats/1.jpg"}, {"url": "https://example.org/2.jpg"}],
     "links": [[0, 0], [1, 1]]}

`language`, `split` and `links` are optional, and so are `url` and `licence` of a document and `licence` of an image.
Other fields are passed over; absent or null links are unknown, `[]` says that there are none. An image path is relative
to the file's folder (or `source.images`) and stays as written, so that a data set does not depend on where that lies.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pipelines.config import DocumentsSource
from pipelines.sources.candidate import CandidateDocument, stated
from pipelines.sources.fields import FieldError, checked, identifier, optional, required
from pipelines.sources.lines import read_lines
from pipelines.sources.openings import BrokenInputError, Place, input_file
from schemas.documents import UNDETERMINED, Link, Provenance, Role, Sentence, Split
from schemas.failures import Failure, Reason, Stage

DATASET = "documents"


def read_source(source: DocumentsSource) -> Iterator[CandidateDocument | Failure]:
    """Yield the drafts and failures of a user's file."""
    yield from read_documents(source.documents)


def read_documents(place: Place) -> Iterator[CandidateDocument | Failure]:
    """Yield the documents of a file in order, and a failure for each record, sentence or link that cannot be used.

    A document is kept without the sentences that are blank (EMPTY_SENTENCE) and the links that lead nowhere
    (BAD_LINK); a failure is filed under the document's id, or `<file name>:<line>` where it has none.

    Raises:
        FileNotFoundError: there is no such file.
    """
    file = input_file(place)
    seen: set[bytes] = set()
    try:
        for number, line in read_lines(file):
            for outcome in _read_line(line, f"{file.name}:{number}"):
                if isinstance(outcome, CandidateDocument):
                    digest = hashlib.blake2b(outcome.id.encode(), digest_size=16).digest()
                    if digest in seen:
                        yield _duplicate(outcome.id, f"{file.name}:{number}")
                        break
                    seen.add(digest)
                yield outcome
    except BrokenInputError as problem:
        yield problem.failure()


def _read_line(line: bytes, place: str) -> Iterator[CandidateDocument | Failure]:
    """Yield what a line gives: the draft first, then the failures of its parts; or one failure."""
    try:
        record = json.loads(line.decode("utf-8-sig", errors="replace"))
    except (ValueError, RecursionError) as error:
        yield Failure(Stage.SOURCES, place, Reason.BROKEN_RECORD, f"expected JSON: {error}", type(error).__name__)
        return
    record_id = place
    try:
        record = checked(record, dict, "a line")
        record_id = identifier(record)
        draft = _draft(record, record_id)
    except FieldError as problem:
        yield problem.failure(record_id)
        return
    draft, failures = _tidy(draft)
    if not draft.sentences or not draft.image_uris:
        found = f"{len(draft.sentences)} sentences and {len(draft.image_uris)} images"
        yield Failure(Stage.SOURCES, record_id, Reason.EMPTY_DOCUMENT, f"expected one of each at least, found {found}")
    else:
        yield draft
    yield from failures


def _draft(record: Mapping[str, Any], record_id: str) -> CandidateDocument:
    split = record.get("split")
    links = record.get("links")
    images = required(record, "images", list)
    uris = tuple(_image_uri(item) for item in images)
    return CandidateDocument(
        id=record_id,
        dataset=DATASET,
        sentences=tuple(_sentence(item) for item in required(record, "sentences", list)),
        image_uris=uris,
        links=None if links is None else tuple(_link(item) for item in checked(links, list, "links")),
        provenance=Provenance(DATASET, record_id, optional(record, "url", "") or None, _licence(record)),
        language=optional(record, "language", UNDETERMINED),
        split=None if split is None else _member(Split, split, "split"),
        image_licences=stated(_licence(item) for item in images),
    )


def _sentence(item: object) -> Sentence:
    if not isinstance(item, dict):
        return Sentence(checked(item, str, "a sentence"))
    fields: dict[str, Any] = item
    return Sentence(required(fields, "text", str), _member(Role, fields.get("role", Role.SENTENCE), "role"))


def _licence(fields: Mapping[str, Any]) -> str | None:
    return optional(fields, "licence", "").strip() or None


def _image_uri(item: object) -> str:
    fields = checked(item, dict, "an image")
    given = [name for name in ("path", "url") if fields.get(name) is not None]
    if len(given) != 1:
        raise FieldError(
            Reason.MISSING_FIELD, f"an image: expected 'path' or 'url', found {' and '.join(given) or 'none'}"
        )
    address = required(fields, given[0], str)
    if not address.strip():
        raise FieldError(Reason.MISSING_FIELD, f"an image: its {given[0]!r} is empty")
    if given[0] == "url" and not address.startswith(("http://", "https://")):
        raise FieldError(Reason.BROKEN_RECORD, f"an image: expected an http or https URL, found {address!r}")
    return address


def _link(item: object) -> Link:
    pair = checked(item, list, "a link")
    if len(pair) != 2:
        raise FieldError(Reason.BROKEN_RECORD, f"a link: expected [sentence, image], found {len(pair)} values")
    return Link(checked(pair[0], int, "a link's sentence"), checked(pair[1], int, "a link's image"))


def _member(kind: Any, value: object, name: str) -> Any:
    try:
        return kind(value)
    except ValueError as error:
        expected = ", ".join(kind)
        raise FieldError(Reason.BROKEN_RECORD, f"{name}: expected one of {expected}, found {value!r}") from error


def _tidy(draft: CandidateDocument) -> tuple[CandidateDocument, list[Failure]]:
    """Return a draft without blank sentences and links that lead nowhere, and why each of them went."""
    kept = [index for index, sentence in enumerate(draft.sentences) if sentence.text.strip()]
    new_index = {old: new for new, old in enumerate(kept)}
    failures = [
        Failure(Stage.SOURCES, draft.id, Reason.EMPTY_SENTENCE, f"sentence {index} is blank")
        for index in range(len(draft.sentences))
        if index not in new_index
    ]
    links: list[Link] = []
    for link in draft.links or ():
        if not (0 <= link.sentence < len(draft.sentences) and 0 <= link.image < len(draft.image_uris)):
            size = f"{len(draft.sentences)} sentences and {len(draft.image_uris)} images"
            message = f"link [{link.sentence}, {link.image}] leads outside {size}"
            failures.append(Failure(Stage.SOURCES, draft.id, Reason.BAD_LINK, message))
        elif link.sentence in new_index:
            links.append(Link(new_index[link.sentence], link.image))
    tidied = replace(
        draft,
        sentences=tuple(draft.sentences[index] for index in kept),
        links=None if draft.links is None else tuple(dict.fromkeys(links)),
    )
    return tidied, failures


def _duplicate(record_id: str, place: str) -> Failure:
    message = f"expected one document of this id, found another at {place}"
    return Failure(Stage.SOURCES, record_id, Reason.DUPLICATE_RECORD, message)
