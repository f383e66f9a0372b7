"""An imgur album is fetched, and becomes the candidate document of the submission that points at it.

What is decided here: what a caption is, and which image it was written under. Deleted images show only when they are
fetched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from urllib.parse import quote

from pipelines.sources.candidate import CandidateDocument
from pipelines.sources.credentials import Credentials
from pipelines.sources.diy.pages import AlbumEntry, parse_album_api, parse_album_page
from pipelines.sources.diy.settings import DiySource, PageOrApi
from pipelines.sources.diy.submissions import Submission, find_album_id
from pipelines.sources.fetched import fetch_records
from pipelines.web.client import Client
from pipelines.web.requests import Kind, Request, Response
from schemas.documents import Link, Provenance, Sentence
from schemas.failures import Failure, Reason, Stage

DATASET = "diy"
IMGUR = "imgur"
LANGUAGE = "en"


def fetch_albums(
    submissions: Iterable[Submission], *, client: Client, source: DiySource, credentials: Credentials
) -> Iterator[CandidateDocument | Failure]:
    """Yield the document of each submission's album and a failure for each animated entry; or why there is none."""
    is_page = source.albums is PageOrApi.PAGE
    key = {} if is_page else {"Authorization": f"Client-ID {credentials.imgur_client_id}"}

    def request_of(submission: Submission) -> Request:
        album_id = quote(find_album_id(submission.url) or "", safe="")
        if is_page:
            return Request(f"{source.imgur_url.rstrip('/')}/a/{album_id}", IMGUR, Kind.PAGE)
        return Request(f"{source.imgur_api_url.rstrip('/')}/3/album/{album_id}", IMGUR, Kind.API, key)

    def read(submission: Submission, answer: Response) -> Iterator[CandidateDocument | Failure]:
        parse = parse_album_page if is_page else parse_album_api
        entries = parse(client.body(answer), base_url=answer.final_url)
        yield _document(submission, entries, answer.fetched_at)
        yield from _animated(submission, entries)

    items = ((submission.id, submission) for submission in submissions)
    return fetch_records(items, client=client, request_of=request_of, read=read)


def _document(submission: Submission, entries: Iterable[AlbumEntry], retrieved: str) -> CandidateDocument:
    """Return the document of an album: each caption is a sentence, linked to its image if that one is kept."""
    sentences: list[Sentence] = []
    images: list[str] = []
    links: list[Link] = []
    for entry in entries:
        has_image = entry.image_uri is not None and not entry.is_animated
        if entry.image_uri is not None and not entry.is_animated:
            images.append(entry.image_uri)
        if entry.caption is not None:
            sentences.append(Sentence(entry.caption))
        if entry.caption is not None and has_image:
            links.append(Link(len(sentences) - 1, len(images) - 1))
    return CandidateDocument(
        id=submission.id,
        dataset=DATASET,
        sentences=tuple(sentences),
        image_uris=tuple(images),
        links=tuple(links),
        provenance=Provenance("reddit", submission.id, submission.page_url, retrieved=retrieved),
        language=LANGUAGE,
    )


def _animated(submission: Submission, entries: Iterable[AlbumEntry]) -> Iterator[Failure]:
    for position, entry in enumerate(entries):
        if entry.is_animated:
            message = f"expected a still picture, found an animation: {entry.image_uri or 'without an address'}"
            yield Failure(Stage.SOURCES, f"{submission.id}#{position}", Reason.ANIMATED_IMAGE, message)
