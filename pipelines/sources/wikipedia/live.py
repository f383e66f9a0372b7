"""Articles of a live MediaWiki: which ones, from a file of titles or a category, and the document of each.

    list_titles      GET /w/api.php?action=query&list=categorymembers&...                   (with continuation)
    fetch_articles   GET /w/rest.php/v1/page/{title}/html
                     GET /w/api.php?action=query&generator=images&prop=imageinfo&...  (pictures and their licences)

All requests go through the one HTTP client as API requests: Wikimedia's robots.txt shuts `/w/` and `/api/` to crawlers
that follow links, and its API rules open them to clients that name a contact (`http.contact`) and keep a modest pace.
Articles are kept once fetched; categories change, and are asked for again when they are old. Links between sentences
and images are unknown. Pictures are of Commons, at a width that Wikimedia serves.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import Any, ClassVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from pipelines.files import input_file, read_lines
from pipelines.sources.fields import Object, typed
from pipelines.sources.records import CandidateDocument, CandidateImage, FieldError, outcomes_of, sentence, utf8
from pipelines.sources.source import Context, Input, Language, Outcomes, Source, fetch_records, input_path
from pipelines.sources.takedowns import taken_down
from pipelines.sources.text import split_sentences
from pipelines.sources.wikipedia.articles import ArticlePage, file_name, parse_article
from pipelines.web.client import Client
from pipelines.web.opt_outs import refusal
from pipelines.web.requests import Kind, Request, Response
from schemas.configs import NonNegativeInt, PositiveInt, require
from schemas.documents import Provenance
from schemas.failures import Failure, Reason, Stage

DATASET = "wiki"
SOURCE = "wikipedia"
_CATEGORY = "Category:"
_ARTICLES, _CATEGORIES = 0, 14  # MediaWiki's numbers of their name spaces
_MAX_TITLE_BYTES = 255  # MediaWiki's own limit
_NOT_IN_TITLES = frozenset("#<>[]{}|")
_WIDTH_PX = 500  # of pictures: one of the few widths that Wikimedia serves
_FILES_A_REQUEST = 50  # MediaWiki's own limit for properties of files


@dataclass(frozen=True, slots=True, kw_only=True)
class WikipediaSource(Source):
    """Articles of a live MediaWiki (SPEC 2, `wiki`): those of a list of titles, of a category, or both.

    Attributes:
        base_url: address of the wiki, without a path.
        titles: path of a text file, one title a line.
        category: its member articles, with or without `Category:` before it.
        category_depth: levels of subcategories whose articles count, too.
        limit: articles taken from the category; 0: all.
        language: of articles whose page states none.
        licence: licence of the articles' text; images have their own.
        repositories: repositories on Wikimedia's image host that pictures may come from (`/wikipedia/<repository>/`);
            empty: all.
        max_sentences: how many are kept, from the first.
    """

    inputs: ClassVar = (Input("titles", published=("titles.txt",)),)
    base_url: str = "https://en.wikipedia.org"
    titles: str = input_path("")
    category: str = ""
    category_depth: NonNegativeInt = 0
    limit: NonNegativeInt = 0
    language: Language = "en"
    licence: str = "CC-BY-SA-4.0"
    repositories: tuple[str, ...] = ("commons",)
    max_sentences: PositiveInt = 100

    def __post_init__(self) -> None:
        Source.__post_init__(self)
        parts = urlsplit(self.base_url)
        is_url = parts.scheme in ("http", "https") and bool(parts.netloc) and parts.path in ("", "/")
        require(is_url, field="source.base_url", value=self.base_url, rule="expected https://HOST, without a path")

    def read_shard(self, shard: str, context: Context) -> Iterator[str | Failure]:
        """Yield the titles that may be asked for, and failures."""
        for title in list_titles(self, context.client):
            entry = (
                None if isinstance(title, Failure) else context.takedowns.matches_record((title,), [self.page(title)])
            )
            yield title if entry is None else taken_down(Stage.SOURCES, entry)

    def page(self, title: str) -> str:
        """Return the address at which a person reads an article."""
        return f"{self.base_url.rstrip('/')}/wiki/{quote(title.replace(' ', '_'))}"

    def fetch(self, titles: Sequence[str], context: Context) -> Outcomes:
        """Yield the documents of articles, and failures."""
        least = context.min_images
        return fetch_articles(titles, client=context.client, source=self, min_images=least, note=context.note)


class _File(msgspec.Struct):
    """What the Action API says of a file, as far as it is asked."""

    url: str
    thumburl: str | None = None
    extmetadata: dict[str, dict[str, Any]] = {}


class _Query(msgspec.Struct):
    """What the Action API answers, as far as it is asked."""

    pages: list[Object] = []
    categorymembers: list[Object] = []


def list_titles(source: WikipediaSource, client: Client) -> Iterator[str | Failure]:
    """Yield the titles of the file, then those of the category, and a failure for what is no title.

    Raises:
        NotFoundError: there is no such file of titles.
    """
    if source.titles:
        name = input_file(source.titles).name
        yield from outcomes_of(((f"{name}:{number}", line) for number, line in read_lines(source.titles)), _title)
    if source.category:
        yield from islice(_category_titles(source, client), source.limit or None)
        client.flush()  # a worker that fetches no article would keep the answers to itself


def fetch_articles(
    titles: Sequence[str],
    *,
    client: Client,
    source: WikipediaSource,
    min_images: int,
    note: Callable[[Iterable[tuple[str, str]]], None] | None = None,
) -> Iterator[CandidateDocument | Failure]:
    """Yield the document of each article, under the number the wiki gave its page; or why there is none.

    Two titles of which one redirects to the other give documents of one id.

    Args:
        min_images: an article with fewer is TOO_FEW_IMAGES.
        note: that of `fetch_records`.
    """
    found: list[tuple[str, ArticlePage]] = []

    def read(title: str, answer: Response) -> Iterator[Failure]:
        html = client.body(answer)
        if (refused := refusal({}, html, client.config, now=client.clock())) is not None:
            raise FieldError(refused.reason, f"{answer.final_url}: {refused.words}")
        page = parse_article(html, base_url=answer.final_url, repositories=source.repositories)
        if len(page.image_urls) < min_images:
            message = f"expected at least {min_images} images, found {len(page.image_urls)}"
            raise FieldError(Reason.TOO_FEW_IMAGES, message)
        when, where = answer.fetched_at, answer.entry.url
        found.append((title, replace(page, title=page.title or title, retrieved=when, captured=where)))
        yield from ()

    def compose(page: ArticlePage, _: Response) -> Iterator[CandidateDocument]:
        yield _document(page, _files(source, client, page), source)

    request_page = partial(article_request, source)
    named = zip(titles, titles, strict=True)
    yield from fetch_records(named, client=client, request_of=request_page, read=read, note=note)
    yield from fetch_records(
        found, client=client, request_of=lambda page: _request(source, _files_query(page)), read=compose, note=note
    )


def article_request(source: WikipediaSource, title: str) -> Request:
    """Return the request of an article's HTML."""
    name = quote(title.replace(" ", "_"), safe="")
    return Request(f"{source.base_url.rstrip('/')}/w/rest.php/v1/page/{name}/html", SOURCE, Kind.API)


def _document(
    page: ArticlePage, files: Mapping[str, tuple[str, str | None]], source: WikipediaSource
) -> CandidateDocument:
    language, title = page.language or source.language, str(page.title)
    shown = [files.get(file_name(url), (url, None)) for url in page.image_urls]
    text = split_sentences(page.paragraphs, limit=source.max_sentences, language=language)
    return CandidateDocument(
        id=page.page_id or title,
        dataset=DATASET,
        sentences=tuple(map(sentence, text.sentences)),
        images=tuple(
            CandidateImage(url, licence=licence, after=text.before(paragraph))
            for (url, licence), paragraph in zip(shown, page.image_paragraphs, strict=True)
        ),
        links=None,
        provenance=Provenance(SOURCE, title, page.url, source.licence or None, page.retrieved, page.captured),
        language=language,
    )


def _files(source: WikipediaSource, client: Client, page: ArticlePage) -> dict[str, tuple[str, str | None]]:
    """Return the address, at the width wanted, and the licence of each file of an article, by its name."""
    files: dict[str, tuple[str, str | None]] = {}
    pages = chain.from_iterable(answer.pages for answer in _ask(source, client, _files_query(page)))
    for info in chain.from_iterable(typed(each.get("imageinfo", []), list[_File], "$.imageinfo") for each in pages):
        licence = " ".join(typed(info.extmetadata.get("LicenseShortName", {}).get("value", ""), str).split())
        files[file_name(info.url)] = info.thumburl or info.url, licence or None
    return files


def _files_query(page: ArticlePage) -> dict[str, str]:
    return {
        "titles": str(page.title),
        "generator": "images",
        "gimlimit": str(_FILES_A_REQUEST),
        "prop": "imageinfo",
        "iiprop": "url|extmetadata",
        "iiurlwidth": str(_WIDTH_PX),
        "iiextmetadatafilter": "LicenseShortName",
    }


def _title(line: bytes, _: str) -> Iterator[str]:
    title = " ".join(utf8(line).replace("_", " ").split())
    if not 0 < len(title.encode()) <= _MAX_TITLE_BYTES or not _NOT_IN_TITLES.isdisjoint(title):
        raise FieldError(Reason.BROKEN_RECORD, f"expected a title, found {title[:80]!r}")
    yield title


def _category_titles(source: WikipediaSource, client: Client) -> Iterator[str | Failure]:
    """Yield the title of each article in a category, then of those below it, level by level, each once."""
    name = _CATEGORY + source.category.strip().replace("_", " ").removeprefix(_CATEGORY)
    level, known = [name], {(_CATEGORIES, name)}
    for _ in range(source.category_depth + 1):
        below: list[str] = []
        for member in outcomes_of(zip(level, level, strict=True), partial(_members, source, client)):
            if isinstance(member, Failure):
                yield member
            elif member not in known:
                known.add(member)
                namespace, title = member
                if namespace == _ARTICLES:
                    yield title
                else:
                    below.append(title)
        level = below


def _members(source: WikipediaSource, client: Client, category: str, _: str) -> Iterator[tuple[int, str]]:
    """Yield the name space and the title of each article and each subcategory in a category."""
    namespaces = f"{_ARTICLES}|{_CATEGORIES}" if source.category_depth else str(_ARTICLES)
    query = {"list": "categorymembers", "cmtitle": category, "cmnamespace": namespaces, "cmlimit": "500"}
    for answer in _ask(source, client, query, max_age_s=client.config.listing_max_age_s):
        for member in answer.categorymembers:
            if (namespace := typed(member.get("ns"), int, "$.ns")) in (_ARTICLES, _CATEGORIES):
                yield namespace, typed(member.get("title"), str, "$.title")


def _ask(
    source: WikipediaSource, client: Client, query: Mapping[str, str], *, max_age_s: float | None = None
) -> Iterator[_Query]:
    """Yield the `query` object of each answer of the Action API, going on where one says how.

    Raises:
        FetchFailed: an answer cannot be fetched.
        FieldError: one says that there was an error, is not the published form, or leads in a circle.
        ValueError: it is no JSON.
    """
    going_on: dict[str, Any] = {}
    asked: set[str] = set()
    while not asked or going_on:
        request = _request(source, {**query, **going_on})
        if request.url in asked:
            raise FieldError(Reason.BROKEN_RECORD, f"{request.url}: the continuation leads in a circle")
        asked.add(request.url)
        body = client.body(client.get(request.url, source=SOURCE, kind=Kind.API, max_age_s=max_age_s))
        answer = typed(json.loads(body), Object)
        if "error" in answer:
            raise FieldError(Reason.BROKEN_RECORD, f"{request.url}: the API answered {str(answer['error'])[:200]}")
        yield typed(answer.get("query", {}), _Query, "$.query")
        going_on = typed(answer.get("continue", {}), Object, "$.continue")


def _request(source: WikipediaSource, query: Mapping[str, Any]) -> Request:
    """Return a request of the Action API."""
    parameters = urlencode({"action": "query", **query, "format": "json", "formatversion": "2"})
    return Request(f"{source.base_url.rstrip('/')}/w/api.php?{parameters}", SOURCE, Kind.API)
