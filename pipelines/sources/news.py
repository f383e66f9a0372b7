"""News articles: the project's own JSON Lines, the choice of a reader for the other formats, and published splits.

    {"id": "n-1", "language": "de", "headline": "..", "lead": "..", "caption": "..", "body": "..",
     "image": "pictures/1.jpg", "entities": [..], "date": "2019-05-01", "split": "train", "licence": "CC-BY-4.0"}

One article a line; `id` and `image` (a path under the images' folder, or a URL) must be there, any of the texts may
be absent or null, and so may `split` and `licence` (of text and image). `entities` and `date` have no place in a
document and are passed over.

A published split is a JSON object from the id of an article's picture to `train`, `val` or `test`: GoodNews'
`img_splits.json`. Where there is one, what it does not name is left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from pipelines.sources.article_settings import NewsFormat, NewsSource
from pipelines.sources.candidate import CandidateDocument
from pipelines.sources.fields import FieldError, checked, identifier, optional, required, split_named
from pipelines.sources.goodnews import read_goodnews
from pipelines.sources.json_streams import is_text, read_mapping
from pipelines.sources.lines import read_lines
from pipelines.sources.news_articles import (
    DATASET,
    ROLES,
    NewsArticle,
    article_to_draft,
    text_of,
    without_repeats,
)
from pipelines.sources.openings import BrokenInputError, input_file
from pipelines.sources.visualnews import read_visualnews
from schemas.documents import Split
from schemas.errors import BuildError
from schemas.failures import Failure, Reason, Stage


def read_news(source: NewsSource) -> Iterator[CandidateDocument | Failure]:
    """Yield the articles of a file in order, and a failure for each record or text that cannot be used.

    A failure is filed under the article's id, or its place in the file where it has none. Of several articles of one
    id the first is kept. Where splits are published apart, an article that has none is a failure (NOT_FOUND).

    Raises:
        BuildError: the splits are no JSON object from ids to splits.
        FileNotFoundError: there is no such file.
    """
    outcomes = without_repeats(_READERS[source.format](source))
    yield from _with_splits(outcomes, source.splits) if source.splits else outcomes


def _with_splits(outcomes: Iterable[CandidateDocument | Failure], place: str) -> Iterator[CandidateDocument | Failure]:
    splits = {name: _split(value, place) for name, value in read_mapping(place, is_text, expected="a split").items()}
    for outcome in outcomes:
        if isinstance(outcome, Failure):
            yield outcome
        elif outcome.id in splits:
            yield replace(outcome, split=splits[outcome.id])
        else:
            message = f"expected the split of this article in {input_file(place).name}, found none"
            yield Failure(Stage.SOURCES, outcome.id, Reason.NOT_FOUND, message)


def _split(name: str, place: str) -> Split | None:
    try:
        return split_named(name, "a split")
    except FieldError as problem:
        raise BuildError(f"{place}: {problem}") from problem


def _read_jsonl(source: NewsSource) -> Iterator[CandidateDocument | Failure]:
    file = input_file(source.articles)
    try:
        for number, line in read_lines(file):
            yield from _read_line(line, f"{file.name}:{number}", source.language)
    except BrokenInputError as problem:
        yield problem.failure()


def _read_line(line: bytes, place: str, language: str) -> Iterator[CandidateDocument | Failure]:
    try:
        value = json.loads(line.decode("utf-8-sig", errors="replace"))
    except (ValueError, RecursionError) as error:
        yield Failure(Stage.SOURCES, place, Reason.BROKEN_RECORD, f"expected JSON: {error}", type(error).__name__)
        return
    record_id = place
    try:
        record = checked(value, dict, "a line")
        record_id = identifier(record)
        article = NewsArticle(
            id=record_id,
            texts={role: text_of(record, role) for role in ROLES},
            image=required(record, "image", str),
            source=DATASET,
            language=optional(record, "language", language),
            licence=text_of(record, "licence"),
            split=split_named(record.get("split"), "split"),
        )
    except FieldError as problem:
        yield problem.failure(record_id)
        return
    yield from article_to_draft(article)


def _read_goodnews(source: NewsSource) -> Iterator[CandidateDocument | Failure]:
    return read_goodnews(source.articles, urls=source.urls)


def _read_visualnews(source: NewsSource) -> Iterator[CandidateDocument | Failure]:
    return read_visualnews(source.articles)


_READERS: Mapping[NewsFormat, Callable[[NewsSource], Iterator[CandidateDocument | Failure]]] = {
    NewsFormat.JSONL: _read_jsonl,
    NewsFormat.GOODNEWS: _read_goodnews,
    NewsFormat.VISUALNEWS: _read_visualnews,
}
