"""GoodNews' `captioning_dataset.json`: articles of the New York Times, each with captioned pictures.

    {"<article id>": {"headline": {"main": "..", ..}, "abstract": "..", "article": "..", "article_url": "..",
                      "images": {"0": "<caption>", "1": ..}}, ...}

One document a picture: headline, abstract (its lead), that picture's caption, and the article. The picture's file is
`<article id>_<key>.jpg`, and so is the document's id. An article of several pictures gives documents that share three
of their texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipelines.documents.draft import Draft
from pipelines.sources.fields import FieldError, checked, clean
from pipelines.sources.json_streams import BrokenStreamError, read_members
from pipelines.sources.news_articles import NewsArticle, article_to_draft, text_of
from schemas.documents import Role
from schemas.failures import Failure, Reason, Stage

SOURCE = "goodnews"
LANGUAGE = "en"


def read_goodnews(path: Path) -> Iterator[Draft | Failure]:
    """Yield a document for each picture, in file order, and a failure for each record or text that cannot be used.

    An article without pictures is a failure of its own (TOO_FEW_IMAGES).

    Raises:
        FileNotFoundError: there is no such file.
    """
    try:
        for name, record in read_members(path):
            try:
                articles = _articles(clean(name), checked(record, dict, "an article"))
            except FieldError as problem:
                yield problem.failure(clean(name))
                continue
            for article in articles:
                yield from article_to_draft(article) if isinstance(article, NewsArticle) else (article,)
    except BrokenStreamError as problem:
        cause = type(problem.__cause__ or problem).__name__
        yield Failure(Stage.SOURCES, path.name, Reason.BROKEN_RECORD, str(problem), cause)


def _articles(article_id: str, record: Mapping[str, Any]) -> list[NewsArticle | Failure]:
    """Return an article once for each of its pictures.

    Raises:
        FieldError: a field that all of its pictures share is missing or has another type.
    """
    texts = {
        Role.HEADLINE: _headline(record),
        Role.LEAD: text_of(record, "abstract"),
        Role.BODY: text_of(record, "article"),
    }
    url = text_of(record, "article_url")
    captions = checked(record.get("images") or {}, dict, "images")  # an empty one is spelt [] here and there
    if not captions:
        message = "expected a picture at least, found none"
        return [Failure(Stage.SOURCES, article_id, Reason.TOO_FEW_IMAGES, message)]
    made: list[NewsArticle | Failure] = []
    for key in captions:
        name = f"{article_id}_{clean(key)}"
        try:
            with_caption = {**texts, Role.CAPTION: text_of(captions, key)}
        except FieldError as problem:
            made.append(problem.failure(name))
            continue
        made.append(NewsArticle(name, with_caption, f"{name}.jpg", SOURCE, LANGUAGE, url))
    return made


def _headline(record: Mapping[str, Any]) -> str | None:
    """Return the main headline; one that is empty is an empty list in the Times' own interface."""
    headline = record.get("headline") or {}
    return text_of(checked(headline, dict, "headline"), "main") if not isinstance(headline, str) else clean(headline)
