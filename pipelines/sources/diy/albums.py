r"""An imgur album is fetched, and becomes the candidate document of the submission that points at it.

Its entries come in order, from a page of any generation, or from the API:

    until 2016   <div class="post-image-container" id="Abc1234">     blocks of HTML
                   <img itemprop="contentURL" src="//i.imgur.com/...">
                   <div class="post-image-meta">  title, description
    from 2014    widgetFactory.mergeConfig('gallery', {image : {..., "album_images":{"count":2,"images":[{"hash": ...
    from 2017    window.runSlots = {config: {...}, item: {..., "album_images":{"count":2,"images":[{"hash": ...
    from 2020    window.postDataJSON = "{\"media\": [{\"url\": ..."
    the API      {"data": {"images": [{"link": ...

A page of JSON may hold the first blocks as HTML, too: the JSON has all. A page that has nothing of this is no album.
What is decided here: what a caption is, and which image it was written under. Deleted images show only when they are
fetched.
"""

import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from bs4 import BeautifulSoup, Tag

from pipelines.sources.diy.submissions import Album, AlbumEntry, Submission, find_album, join_caption
from pipelines.sources.fields import Object, text_or_none, typed
from pipelines.sources.records import CandidateDocument, CandidateImage, FieldError, unusable
from pipelines.sources.source import fetch_records
from pipelines.sources.text import absolute_url, check_work
from pipelines.web.client import Client
from pipelines.web.requests import Kind, Request, Response
from schemas.documents import Link, Provenance, Sentence
from schemas.failures import Failure, Reason

DATASET = "diy"
IMGUR = "imgur"
LANGUAGE = "en"
ANIMATED_EXTENSIONS = (".gifv", ".mp4", ".webm")  # a .gif may stand still: its frames are counted later
_EMBEDDED = (
    (re.compile(r"window\.postDataJSON\s*=\s*"), "media"),
    (re.compile(r'"album_images"\s*:\s*(?=\{)'), "images"),
)
_ONE_PICTURE = re.compile(r'"is_album"\s*:\s*false')
_STRING = re.compile(r"""(['"])((?:(?!\1)[^\\]|\\.)*+)\1""", re.DOTALL)
_ESCAPE = re.compile(r'\\(x[0-9a-fA-F]{2}|.)|"', re.DOTALL)
_DIV = re.compile(r"<(/?)div\b", re.IGNORECASE)
_MAX_WORK = 2e8  # a few seconds
_MAX_DEPTH = 100  # of `div` elements: what is in a container is read once for each that it is in


@dataclass(frozen=True, slots=True)
class AlbumHost:
    """Where albums are asked for: imgur's pages, or with the id of a client its API."""

    url: str
    client_id: str = field(default="", repr=False)

    def request(self, album: str) -> Request:
        """Return the request of an album."""
        root = self.url.rstrip("/")
        if not self.client_id:
            return Request(f"{root}/a/{album}", IMGUR, Kind.PAGE)
        return Request(f"{root}/3/album/{album}", IMGUR, Kind.API, {"Authorization": f"Client-ID {self.client_id}"})


def fetch_albums(
    submissions: Iterable[Submission],
    *,
    client: Client,
    host: AlbumHost,
    note: Callable[[Iterable[tuple[str, str]]], None] | None = None,
) -> Iterator[CandidateDocument | Failure]:
    """Yield the document of each submission's album, or why there is none; a gallery of Reddit's is asked of no host.

    `note` is that of `fetch_records`.
    """
    unsure: set[str] = set()

    def albums() -> Iterator[tuple[str, tuple[Submission, Album]]]:
        for submission in submissions:
            if (album := find_album(submission.url)) is not None and submission.gallery is None:
                unsure.update(() if album.is_sure else (submission.id,))
                yield submission.id, (submission, album)

    def request_of(item: tuple[Submission, Album]) -> Request:
        return host.request(item[1].id)

    def read(item: tuple[Submission, Album], answer: Response) -> Iterator[CandidateDocument]:
        parse = parse_album_api if host.client_id else parse_album_page
        yield document_of(item[0], parse(client.body(answer), base_url=answer.final_url), answer)

    submissions = list(submissions)
    for submission in submissions:
        if submission.gallery is not None:
            yield document_of(submission, submission.gallery)
    for outcome in fetch_records(albums(), client=client, request_of=request_of, read=read, note=note):
        if isinstance(outcome, Failure) and outcome.reason is Reason.NOT_FOUND and outcome.record_id in unsure:
            message = f"expected an album, found none of this name: a single picture has none; {outcome.message}"
            yield replace(outcome, reason=Reason.NOT_AN_ALBUM, message=message)
        else:
            yield outcome


def document_of(
    submission: Submission, entries: Iterable[AlbumEntry], answer: Response | None = None
) -> CandidateDocument:
    """Return the document of an album: each caption is a sentence, linked to its image if that one is kept.

    An image stands beside its caption, or where it would stand: before the captions of the blocks below. An animation
    is an image that cannot be used.
    """
    sentences: list[Sentence] = []
    images: list[CandidateImage] = []
    links: list[Link] = []
    for entry in entries:
        image = _still(entry) if entry.is_animated else entry.image_uri
        if image is not None:
            images.append(CandidateImage(image, after=len(sentences)))
        if entry.caption is not None:
            sentences.append(Sentence(entry.caption))
        if image is not None and entry.caption is not None:
            links.append(Link(len(sentences) - 1, len(images) - 1))
    fetched = {} if answer is None else {"retrieved": answer.fetched_at, "captured": answer.entry.url}
    return CandidateDocument(
        id=submission.id,
        dataset=DATASET,
        sentences=tuple(sentences),
        images=tuple(images),
        links=tuple(links),
        provenance=Provenance("reddit", submission.id, submission.page_url, **fetched),
        language=LANGUAGE,
    )


def _still(entry: AlbumEntry) -> str:
    found = entry.image_uri or "without an address"
    return unusable(FieldError(Reason.ANIMATED_IMAGE, f"expected a still picture, found an animation: {found}"))


def parse_album_page(page: bytes, *, base_url: str) -> tuple[AlbumEntry, ...]:
    """Return the album on a page.

    Args:
        page: HTML; what is not UTF-8 becomes U+FFFD.
        base_url: the page's own address: it completes the images' addresses.

    Raises:
        FieldError: the page holds no album, or not in a published form.
        ValueError: its JSON is none.
    """
    text = page.decode("utf-8", errors="replace")
    for pattern, name in _EMBEDDED:
        found = pattern.search(text)
        if found is not None:
            return _entries(typed(_read_value(text, found.end()), Object), name, base_url)
    check_work(text, limit=_MAX_WORK)
    if max(accumulate(-1 if match[1] else 1 for match in _DIV.finditer(text)), default=0) > _MAX_DEPTH:
        raise FieldError(Reason.BROKEN_RECORD, f"{base_url}: its elements are nested too deep")
    containers = BeautifulSoup(text, "html.parser").find_all("div", class_="post-image-container")
    if not containers and _ONE_PICTURE.search(text):
        _check_album({"is_album": False}, base_url)
    if not containers:
        raise FieldError(Reason.BROKEN_RECORD, f"{base_url}: expected an album in HTML or JSON, found none")
    return tuple(_container_entry(container, base_url) for container in containers)


def _check_album(about: Mapping[str, Any], base_url: str) -> None:
    """Raise where what an address leads to says that it is a single picture."""
    if about.get("is_album") is False:
        raise FieldError(Reason.NOT_AN_ALBUM, f"{base_url}: expected an album, found a single picture")


def parse_album_api(data: bytes, *, base_url: str) -> tuple[AlbumEntry, ...]:
    """Return the album in an answer of `GET /3/album/{id}`.

    Raises:
        FieldError: it says that there is none (NOT_FOUND), or is not the published form.
        ValueError: it is no JSON.
    """
    answer = typed(json.loads(data), Object)
    if answer.get("success") is False:
        raise FieldError(Reason.NOT_FOUND, f"the API has no such album: status {answer.get('status')}")
    return _entries(typed(answer.get("data"), Object, "$.data"), "images", base_url)


def _entries(album: Object, name: str, base_url: str) -> tuple[AlbumEntry, ...]:
    """Return the entries of an album in JSON, whose images are in the member of a name."""
    _check_album(album, base_url)
    return tuple(_json_entry(image, base_url) for image in typed(album.get(name), list[Object], f"$.{name}"))


def _json_entry(image: Object, base_url: str) -> AlbumEntry:
    """Return the entry of an image in JSON: API and pages name the same things each in its own way."""
    about = typed(image.get("metadata") or image, Object, "$.metadata")
    address = text_or_none(image, "link") or text_or_none(image, "url")
    if not address:
        extension = (text_or_none(image, "ext") or ".jpg").partition("?")[0]
        address = f"//i.imgur.com/{typed(image.get('hash'), str, '$.hash')}{extension}"
    is_video = "video" in f"{image.get('type')} {image.get('mime_type')}" or _is_animated(address)
    title, description = (html.unescape(text_or_none(about, name) or "") for name in ("title", "description"))
    return AlbumEntry(
        image_uri=absolute_url(base_url, address),
        caption=join_caption(title, description),
        is_animated=is_video or bool(about.get("animated") or about.get("is_animated")),
    )


def _container_entry(container: Tag, base_url: str) -> AlbumEntry:
    image = container.find("img", attrs={"itemprop": "contentURL"}) or container.find("img")
    moving = container.find("source") or container.find("video")
    address = _source(image) or _source(moving)
    caption = join_caption(_text(container, "post-image-title"), _text(container, "post-image-description"))
    is_animated = moving is not None or _is_animated(address or "")
    return AlbumEntry(absolute_url(base_url, address) if address else None, caption, is_animated)


def _source(tag: Tag | None) -> str:
    return str(tag.get("src") or tag.get("data-src") or "").strip() if tag is not None else ""


def _text(container: Tag, class_name: str) -> str | None:
    found = container.find(class_=class_name)
    if found is None:
        return None
    for line_break in found.find_all("br"):
        line_break.append("\n")
    return found.get_text()


def _is_animated(address: str) -> bool:
    return address.partition("?")[0].lower().endswith(ANIMATED_EXTENSIONS)


def _read_value(text: str, start: int) -> Any:
    """Return the value that begins in a script: an object, or a string in either kind of quotes that spells one."""
    if not text.startswith(("'", '"'), start):
        return json.JSONDecoder().raw_decode(text, start)[0]
    literal = _STRING.match(text, start)
    if literal is None:
        raise FieldError(Reason.BROKEN_RECORD, f"a string that does not end: {text[start : start + 40]!r}")
    return json.loads(json.loads(f'"{_ESCAPE.sub(_json_escape, literal[2])}"', strict=False))


def _json_escape(match: re.Match[str]) -> str:
    r"""Return the JSON escape of a JavaScript one (JSON has neither `\x` nor escapes of ordinary characters)."""
    escape = match[1]
    if escape is None:
        return r"\""
    if len(escape) > 1:
        return f"\\u00{escape[1:]}"
    return f"\\{escape}" if escape in '"\\/bfnrtu' else escape
