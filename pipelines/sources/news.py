"""News articles: the project's own JSON Lines, and the choice of a reader for the other formats.

    {"id": "n-1", "language": "de", "headline": "..", "lead": "..", "caption": "..", "body": "..",
     "image": "pictures/1.jpg", "entities": [..], "date": "2019-05-01"}

One article a line; `id` and `image` (a path under the images' folder, or a URL) must be there, any of the texts may
be absent or null. `entities` and `date` have no place in a document and are passed over.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from pipelines.documents.draft import Draft
from pipelines.sources.article_settings import NewsFormat, NewsSource
from pipelines.sources.fields import FieldError, checked, optional, required
from pipelines.sources.goodnews import read_goodnews
from pipelines.sources.lines import BrokenStreamError, read_lines
from pipelines.sources.news_articles import (
    DATASET,
    ROLES,
    NewsArticle,
    article_to_draft,
    record_id_of,
    text_of,
    without_repeats,
)
from pipelines.sources.visualnews import read_visualnews
from schemas.failures import Failure, Reason, Stage


def read_news(source: NewsSource) -> Iterator[Draft | Failure]:
    """Yield the articles of a file in order, and a failure for each record or text that cannot be used.

    A failure is filed under the article's id, or its place in the file where it has none. Of several articles of one
    id the first is kept.

    Raises:
        FileNotFoundError: there is no such file.
    """
    yield from without_repeats(_READERS[source.format](Path(source.articles), source))


def _read_jsonl(path: Path, source: NewsSource) -> Iterator[Draft | Failure]:
    try:
        for number, line in read_lines(path):
            yield from _read_line(line, f"{path.name}:{number}", source.language)
    except BrokenStreamError as problem:
        cause = type(problem.__cause__ or problem).__name__
        yield Failure(Stage.SOURCES, f"{path.name}:{problem.line}", Reason.BROKEN_RECORD, str(problem), cause)


def _read_line(line: bytes, place: str, language: str) -> Iterator[Draft | Failure]:
    try:
        value = json.loads(line.decode("utf-8-sig", errors="replace"))
    except (ValueError, RecursionError) as error:
        yield Failure(Stage.SOURCES, place, Reason.BROKEN_RECORD, f"expected JSON: {error}", type(error).__name__)
        return
    record_id = place
    try:
        record = checked(value, dict, "a line")
        record_id = record_id_of(record)
        article = NewsArticle(
            id=record_id,
            texts={role: text_of(record, role) for role in ROLES},
            image=required(record, "image", str),
            source=DATASET,
            language=optional(record, "language", language),
        )
    except FieldError as problem:
        yield problem.failure(record_id)
        return
    yield from article_to_draft(article)


def _read_goodnews(path: Path, _: NewsSource) -> Iterator[Draft | Failure]:
    return read_goodnews(path)


def _read_visualnews(path: Path, _: NewsSource) -> Iterator[Draft | Failure]:
    return read_visualnews(path)


_READERS: Mapping[NewsFormat, Callable[[Path, NewsSource], Iterator[Draft | Failure]]] = {
    NewsFormat.JSONL: _read_jsonl,
    NewsFormat.GOODNEWS: _read_goodnews,
    NewsFormat.VISUALNEWS: _read_visualnews,
}
