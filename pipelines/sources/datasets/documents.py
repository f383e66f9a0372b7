"""Records of JSON Lines, with their types: documents that a user wrote.

{"id": "cat-1", "language": "en", "split": "train",
 "sentences": ["A cat sleeps.", {"text": "Two cats", "role": "caption"}],
 "images": ["cats/1.jpg", {"path": "cats/2.jpg", "after_sentence": 0}, {"url": "https://example.org/3.jpg"}],
 "links": [[0, 0], [1, 1]]}

A user's own documents: a file, a folder or an archive of HTML, Markdown, EPUB, or JSON Lines.

`own_files.py` says which files are read, `own_pages.py` what becomes of a page. A JSON array of records, or one record
over several lines, is read as well.

Of a record `id`, `language`, `split` and `links` are optional: without an id a document is called by its file and line
(`documents.jsonl:7`). So are `url` and `licence` of a document; of an image `licence`, `after_sentence` (how many
sentences of the document stand before it, `schemas.documents`) and metadata: `title`, `caption`, `credit`, `rights`,
`date`, `place`, `keywords` (`schemas.metadata`). Other fields are passed over; absent or null links are unknown, `[]`
says that there are none; where every one of them leads nowhere they are unknown. An image path is relative to its
file's folder (or `source.images`). An image that cannot be used costs its document nothing else.

Of documents with one id the first counts.
"""

import json
import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar
from urllib.parse import urljoin

import msgspec

from pipelines.embedded import on_web
from pipelines.files import BrokenInputError, input_file, is_archive, read_tree
from pipelines.recipe import EVERY_DOCUMENT, BuildConfig, without_limits
from pipelines.sources.corpora.compose import Reading
from pipelines.sources.fields import Number, identifier, meant, metadata, misspelt, typed
from pipelines.sources.own_files import Kind, OwnFile, OwnFiles, check_form
from pipelines.sources.own_pages import Place, read_pages
from pipelines.sources.records import (
    CandidateDocument,
    CandidateImage,
    FieldError,
    file_name,
    json_lines,
    linked,
    object_or_problem,
    outcomes_of,
    rejected,
    sentence,
    unusable,
    web_url,
)
from pipelines.sources.source import IMAGES, Input, Language, Outcomes, Source, input_path
from schemas.documents import UNDETERMINED, Provenance, Role, Split, numbers_of
from schemas.failures import Failure, Reason, Stage
from schemas.metadata import Metadata

DATASET = "documents"
_HEAD_BYTES = 2048


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


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentsSource(Source):
    """A user's own documents: HTML, Markdown, EPUB or JSON Lines beside image files or URLs.

    Attributes:
        documents: path of a file, a folder, a zip or a tar, or a pattern of paths (`own/*.md`).
        images: folder, tar or zip that image paths are relative to, or the URL of a folder; empty: what the file
            itself is in. A URL that ends with a slash is that of the pages, too: their addresses are URLs.
        language: language of pages that do not state one.
    """

    inputs: ClassVar = (Input("documents", "tree", is_needed=True), IMAGES)
    documents: str = input_path("")
    images: str = input_path("")
    language: Language = UNDETERMINED

    def __post_init__(self) -> None:
        Source.__post_init__(self)
        if on_web(self.documents) and not self.images:
            object.__setattr__(self, "images", urljoin(self.documents, "."))

    def remarks(self) -> Iterator[str]:
        """Yield which files are read, and which are not."""
        return OwnFiles(self.documents).remarks()

    def read(self) -> Outcomes:
        """Yield the documents of all files in order, and a failure for each file, record or part that cannot be used.

        A failure is filed under the document's id, `<file>:<line>` where it has none, or the file.

        Raises:
            NotFoundError: there is no such file.
            UsageError: none of the files holds documents.
        """
        found = OwnFiles(self.documents)
        reading = Reading(dataset=DATASET, root=found.root, shards=found.root, source=self)
        place = Place(reading=reading, root=found.root, has=found.has, by_last_name=found.by_last_name)
        if self.images:
            below = ".." if on_web(self.images) or is_archive(self.images) else os.path.relpath(found.root, self.images)
            is_inside = below.split("/")[0] != ".."
            has = (lambda _: True) if on_web(self.images) else OwnFiles(self.images).has
            within = ("" if below == "." else below) if is_inside else None
            url = self.images if on_web(self.images) and self.images.endswith("/") else ""
            place = replace(place, root=self.images, below=within, has=has, by_last_name={}, url=url)
        return _each_id_once(_outcomes(found, place, bool(self.images)))


def _outcomes(found: OwnFiles, place: Place, has_images: bool) -> Outcomes:
    pages = {file.name: file for file in found.files if file.kind is not Kind.JSON}
    for file in found.files:
        if file.kind is Kind.JSON:
            read = partial(read_row, dataset=DATASET, folder="" if has_images else posixpath.dirname(file.name))
            yield from outcomes_of(_records(file), read, identity)
    if pages:
        yield from outcomes_of(_bytes(found, pages), partial(_read_page, pages=pages, place=place))


def _records(file: OwnFile) -> Iterator[tuple[str, dict[str, Any] | FieldError]]:
    """Yield each record of a file of JSON, under `<file>:<line>`, or `<file>:<number>` of an array."""
    with input_file(file.address).open() as stream:
        head = stream.read(_HEAD_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()
    check_form(file, head)
    if not head.startswith(b"[") and head.split(b"\n", 1)[0].strip() != b"{":
        yield from json_lines(file.address, file.name)
        return
    with input_file(file.address).open() as stream:
        try:
            whole = json.load(stream)
        except (ValueError, RecursionError) as problem:
            message = f"{file.name}: expected one object a line (JSON Lines), or one JSON array: {problem}"
            raise BrokenInputError(message, file.name) from problem
    for number, record in enumerate(whole if isinstance(whole, list) else [whole], start=1):
        yield f"{file.name}:{number}", object_or_problem(record)


def _bytes(found: OwnFiles, pages: dict[str, OwnFile]) -> Iterator[tuple[str, bytes | FieldError]]:
    """Yield the bytes of each page, under its name; those of an archive in its order."""
    if len(found.names) == 1:
        with input_file(found.at(found.names[0])).open() as stream:
            yield found.names[0], stream.read()
        return
    for name, data in read_tree(found.root, wanted=pages.__contains__):
        is_broken = isinstance(data, BrokenInputError)
        yield name, FieldError(Reason.BROKEN_RECORD, str(data)) if is_broken else data  # type: ignore[misc]


def _read_page(data: bytes, name: str, *, pages: dict[str, OwnFile], place: Place) -> Outcomes:
    try:
        if pages[name].kind is not Kind.EPUB:
            check_form(pages[name], data[:_HEAD_BYTES])
        yield from read_pages(pages[name], data, place)
    except BrokenInputError as problem:
        yield problem.failure()


def _each_id_once(outcomes: Iterable[CandidateDocument | Failure]) -> Outcomes:
    """Yield outcomes; of documents with one id the first, and for each other a failure."""
    seen: dict[str, int] = {}  # what each document hashes to
    for outcome in outcomes:
        if not isinstance(outcome, CandidateDocument):
            yield outcome
        elif (first := seen.get(outcome.id)) is None:
            seen[outcome.id] = hash(outcome)
            yield outcome
        else:
            reason = Reason.DUPLICATE_RECORD if first == hash(outcome) else Reason.ID_TAKEN
            yield Failure(Stage.DOCUMENTS, outcome.id, reason, "another document has the same id")


def documents() -> BuildConfig:
    """A user's own documents: all that have a sentence and an image are kept, near-duplicates included."""
    return without_limits("documents", DocumentsSource(), EVERY_DOCUMENT)


RECIPES = {"documents": documents}
