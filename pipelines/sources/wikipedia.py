"""Articles of a live MediaWiki: which ones, from a file of titles or a category, and the draft of each.

    list_titles   GET /w/api.php?action=query&list=categorymembers&...   (with continuation)
    fetch_article GET /w/rest.php/v1/page/{title}/html, or /api/rest_v1/page/html/{title}

All requests go through the one HTTP client as API requests: Wikimedia's robots.txt shuts `/w/` and `/api/` to crawlers
that follow links, and its API rules open them to clients that name a contact (`http.contact`) and keep a modest pace.
Articles are kept once fetched; categories change, and are asked for again when they are old. Links between sentences
and images are unknown. Pictures are of Commons, at a width that Wikimedia serves.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import Any
from urllib.parse import quote, urlencode

from pipelines.sources.article_settings import ArticleApi, WikipediaSource
from pipelines.sources.candidate import CandidateDocument
from pipelines.sources.fields import FieldError, checked, optional, required
from pipelines.sources.lines import read_lines
from pipelines.sources.openings import BrokenInputError, input_file
from pipelines.sources.sentences import split_sentences
from pipelines.sources.wikipedia_pages import PageError, parse_article
from pipelines.web.client import Client
from pipelines.web.errors import FetchFailed
from pipelines.web.requests import Kind
from schemas.documents import Provenance, Sentence
from schemas.failures import Failure, Reason, Stage

DATASET = "wiki"
SOURCE = "wikipedia"
_CATEGORY = "Category:"
_ARTICLES, _CATEGORIES = 0, 14  # MediaWiki's numbers of name spaces
_MAX_TITLE_BYTES = 255  # MediaWiki's own limit
_NOT_IN_TITLES = frozenset("#<>[]{}|")


def list_titles(source: WikipediaSource, client: Client, *, max_age_s: float | None = None) -> Iterator[str | Failure]:
    """Yield the titles of the file, then those of the category, each once, and a failure for what is no title.

    Args:
        source: names the file, the category, or both.
        client: fetches the category's pages.
        max_age_s: a page of the category captured longer ago is asked for again; None: never.

    Raises:
        FileNotFoundError: there is no such file of titles.
    """
    seen: set[str] = set()
    for outcome in chain(_file_titles(source), _category_titles(source, client, max_age_s)):
        if isinstance(outcome, Failure):
            yield outcome
        elif outcome in seen:
            yield _failure(outcome, Reason.DUPLICATE_RECORD, "expected every title once, found it again")
        else:
            seen.add(outcome)
            yield outcome


def fetch_article(title: str, *, client: Client, source: WikipediaSource) -> CandidateDocument | Failure:
    """Return the draft of an article, under the number the wiki gave its page; or why there is none.

    Two titles of which one redirects to the other give drafts of one id.
    """
    try:
        answer = client.get(article_url(source, title), source=SOURCE, kind=Kind.API)
        page = parse_article(
            client.body(answer),
            base_url=answer.final_url,
            width_px=source.image_width_px,
            min_display_px=source.min_display_px,
            repositories=source.repositories,
            skip_sections=source.skip_sections,
        )
    except FetchFailed as problem:
        return problem.failure(title, stage=Stage.SOURCES)
    except PageError as problem:
        return Failure(Stage.SOURCES, title, Reason.BROKEN_RECORD, str(problem), type(problem).__name__)
    sentences = split_sentences(
        page.paragraphs, limit=source.max_sentences, language=source.language, model=source.sentence_model
    )
    if not sentences:
        return _failure(title, Reason.EMPTY_DOCUMENT, "expected the text of an article, found none")
    own_title = page.title or title
    return CandidateDocument(
        id=page.page_id or own_title,
        dataset=DATASET,
        sentences=tuple(map(Sentence, sentences)),
        image_uris=page.image_urls,
        links=None,
        provenance=Provenance(SOURCE, own_title, page.url, source.licence or None, answer.fetched_at),
        language=source.language,
    )


def article_url(source: WikipediaSource, title: str) -> str:
    """Return the address of an article's HTML."""
    base, name = source.base_url.rstrip("/"), quote(title.replace(" ", "_"), safe="")
    return (
        f"{base}/w/rest.php/v1/page/{name}/html"
        if source.api is ArticleApi.CORE
        else f"{base}/api/rest_v1/page/html/{name}"
    )


def category_url(source: WikipediaSource, category: str, resume: str | None = None) -> str:
    """Return the address of a page of a category's members, the first or the one that `resume` continues."""
    query = {
        "action": "query",
        "list": "categorymembers",
        "cmtitle": category,
        "cmnamespace": f"{_ARTICLES}|{_CATEGORIES}" if source.category_depth else str(_ARTICLES),
        "cmlimit": "500",
        "format": "json",
        "formatversion": "2",
    }
    query |= {"cmcontinue": resume} if resume else {}
    return f"{source.base_url.rstrip('/')}/w/api.php?{urlencode(query)}"


def _file_titles(source: WikipediaSource) -> Iterator[str | Failure]:
    if not source.titles:
        return
    file = input_file(source.titles)
    try:
        for number, line in read_lines(file):
            title = " ".join(line.decode("utf-8-sig", errors="replace").replace("_", " ").split())
            if len(title.encode()) > _MAX_TITLE_BYTES or not _NOT_IN_TITLES.isdisjoint(title) or "\ufffd" in title:
                yield _failure(f"{file.name}:{number}", Reason.BROKEN_RECORD, f"expected a title, found {title[:80]!r}")
            elif title:
                yield title
    except BrokenInputError as problem:
        yield problem.failure()


def _category_titles(source: WikipediaSource, client: Client, max_age_s: float | None) -> Iterator[str | Failure]:
    """Yield the titles in a category, breadth first, at most `source.limit`; a subcategory is read once."""
    if not source.category:
        return
    name = source.category.strip().replace("_", " ")
    waiting = deque([(name if name.startswith(_CATEGORY) else _CATEGORY + name, 0)])
    known = {waiting[0][0]}
    titles: set[str] = set()
    while waiting:
        category, depth = waiting.popleft()
        for member in _members(source, category, client, max_age_s):
            if isinstance(member, Failure):
                yield member
                continue
            namespace, title = member
            if namespace == _CATEGORIES:
                if depth < source.category_depth and title not in known:
                    known.add(title)
                    waiting.append((title, depth + 1))
            elif namespace == _ARTICLES and title not in titles:  # an article may be in several subcategories
                titles.add(title)
                yield title
                if len(titles) == source.limit:
                    return


def _members(
    source: WikipediaSource, category: str, client: Client, max_age_s: float | None
) -> Iterator[tuple[int, str] | Failure]:
    """Yield name space and title of a category's members, page by page; last a failure where that ends early."""
    resume: str | None = None
    asked: set[str] = set()
    while True:
        url = category_url(source, category, resume)
        try:
            answer = client.get(url, source=SOURCE, kind=Kind.API, max_age_s=max_age_s)
            members, resume = _read_members(client.body(answer))
        except FetchFailed as problem:
            yield problem.failure(category, stage=Stage.SOURCES)
            return
        except (ValueError, RecursionError) as problem:  # FieldError and JSON's own are among them
            reason = problem.reason if isinstance(problem, FieldError) else Reason.BROKEN_RECORD
            yield Failure(Stage.SOURCES, category, reason, f"{url}: {problem}", type(problem).__name__)
            return
        yield from members
        if resume is None:
            return
        if resume in asked:
            yield _failure(category, Reason.BROKEN_RECORD, f"{url}: the continuation leads in a circle")
            return
        asked.add(resume)


def _read_members(body: bytes) -> tuple[list[tuple[int, str]], str | None]:
    """Return the members in an answer, and where it goes on.

    Raises:
        FieldError: it says that there was an error, or is not the published form.
        ValueError: it is no JSON.
    """
    answer: dict[str, Any] = checked(json.loads(body), dict, "the answer")
    if "error" in answer:
        error: dict[str, Any] = optional(answer, "error", {})
        raise FieldError(Reason.BROKEN_RECORD, f"the API says {error.get('code')!r}: {error.get('info')!r}")
    query: dict[str, Any] = required(answer, "query", dict)
    members = [
        (required(member, "ns", int), required(member, "title", str))
        for item in required(query, "categorymembers", list)
        if (member := checked(item, dict, "a member"))
    ]
    going_on: dict[str, Any] = optional(answer, "continue", {})
    return members, optional(going_on, "cmcontinue", "") or None


def _failure(record_id: str, reason: Reason, message: str) -> Failure:
    return Failure(Stage.SOURCES, record_id, reason, message)
