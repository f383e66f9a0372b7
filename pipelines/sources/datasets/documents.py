"""A user's own documents: a file, a folder or an archive of HTML, Markdown, EPUB, or JSON Lines.

`own_files.py` says which files are read, `own/rows.py` what a record of JSON Lines is, `own/pages.py` what becomes of a
page. A JSON array of records, or one record over several lines, is read as well.

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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from pipelines.embedded import on_web
from pipelines.files import BrokenInputError, input_file, is_archive, read_tree
from pipelines.recipe import EVERY_DOCUMENT, BuildConfig, without_limits
from pipelines.sources.corpora.compose import Reading
from pipelines.sources.inputs import IMAGES, Input, Language, input_path
from pipelines.sources.own.pages import Place, read_pages
from pipelines.sources.own.rows import identity, read_row
from pipelines.sources.own_files import Kind, OwnFile, OwnFiles, check_form
from pipelines.sources.records import CandidateDocument, FieldError, json_lines, object_or_problem, outcomes_of
from pipelines.sources.source import Outcomes, Source
from schemas.documents import UNDETERMINED
from schemas.failures import Failure, Reason, Stage
from schemas.versions import fingerprint, plain

DATASET = "documents"
_HEAD_BYTES = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentsSource(Source):
    """A user's own documents: HTML, Markdown, EPUB or JSON Lines beside image files or URLs.

    Attributes:
        documents: path of a file, a folder, a zip or a tar, or a pattern of paths (`own/*.md`).
        images: folder, tar or zip that image paths are relative to, or the URL of a folder; empty: what the file
            itself is in.
        language: of pages that do not say theirs.
        sentence_model: name or path of an installed spaCy pipeline that splits the text of pages; empty: by rules.
    """

    inputs: ClassVar = (Input("documents", "tree", is_needed=True), IMAGES)
    documents: str = input_path("")
    images: str = input_path("")
    language: Language = UNDETERMINED
    sentence_model: str = ""

    def __post_init__(self) -> None:
        Source.__post_init__(self)
        if on_web(self.documents) and not self.images:
            object.__setattr__(self, "images", self.documents.rpartition("/")[0])

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
        reading = Reading(
            dataset=DATASET, root=found.root, shards=found.root, has_images=bool(self.images), language=self.language,
            sentence_model=self.sentence_model, texts="", pictures="", keep_splits=True, skip_repeats=False,
        )  # fmt: skip
        place = Place(reading=reading, root=found.root, has=found.has, by_last_name=found.by_last_name)
        if self.images:
            below = ".." if on_web(self.images) or is_archive(self.images) else os.path.relpath(found.root, self.images)
            is_inside = below.split("/")[0] != ".."
            has = OwnFiles(self.images).has if is_inside else _may_be
            below = below if is_inside and below != "." else ""
            place = replace(place, root=self.images, below=below, has=has, by_last_name={})
        return _each_id_once(_outcomes(found, place, bool(self.images)))


def read_documents(address: str | Path) -> Outcomes:
    """Yield the documents of a file, a folder or an archive; see `DocumentsSource.read`."""
    return DocumentsSource(documents=str(address)).read()


def _may_be(_: str) -> bool:
    return True


def _outcomes(found: OwnFiles, place: Place, has_images: bool) -> Outcomes:
    pages = {file.name: file for file in found.files if file.kind is not Kind.JSON}
    for file in found.files:
        if file.kind is Kind.JSON:
            folder = "" if has_images else posixpath.dirname(file.name)
            read = partial(read_row, dataset=DATASET, folder=folder)
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
    seen: dict[str, str] = {}
    for outcome in outcomes:
        if isinstance(outcome, CandidateDocument):
            content = fingerprint(plain(outcome))
            first = seen.setdefault(outcome.id, content)
            if first is not content:
                reason = Reason.DUPLICATE_RECORD if first == content else Reason.ID_TAKEN
                yield Failure(Stage.DOCUMENTS, outcome.id, reason, "another document has the same id")
                continue
        yield outcome


def documents() -> BuildConfig:
    """A user's own documents: all that have a sentence and an image are kept, near-duplicates included."""
    return without_limits("documents", DocumentsSource(), EVERY_DOCUMENT)


RECIPES = {"documents": documents}
