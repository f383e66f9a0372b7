"""When documents, images and files of a source were fetched, as the raw store knows.

A time of retrieval belongs to a lake and not to a version: see `schemas.retrievals`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pipelines.images.obtain import WEB, host_of
from pipelines.web.captures import Capture, CaptureStore, Kind, Request
from pipelines.web.downloads import CapturedFile
from pipelines.web.errors import FetchFailed
from pipelines.web.targets import parse_target
from schemas.documents import Document
from schemas.images import Image
from schemas.lake import Folder
from schemas.retrievals import Retrieval, Retrieved


def of_inputs(captured: Iterable[CapturedFile]) -> list[Retrieval]:
    """Return the retrieval of each file that was captured."""
    return [Retrieval(Retrieved.INPUT, file.url, file.url, file.fetched_at) for file in captured]


def of_document(document: Document) -> Iterator[Retrieval]:
    """Yield the retrieval of a document whose page was fetched."""
    provenance = document.provenance
    if provenance.retrieved is not None:
        yield Retrieval(Retrieved.DOCUMENT, document.id, provenance.url, provenance.retrieved)


def of_image(image: Image, raw: Folder) -> Iterator[Retrieval]:
    """Yield the retrieval of an image that came over the web."""
    if image.source is None or not host_of(image.source):
        return
    try:
        request = Request(WEB, Kind.IMAGE, parse_target(image.source).url)
    except FetchFailed:  # not an address that anything was ever fetched from
        return
    found = CaptureStore(raw).find(request)
    if isinstance(found, Capture):
        yield Retrieval(Retrieved.IMAGE, image.hash, image.source, found.fetched_at)
