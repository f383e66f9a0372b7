"""GoodNews' `captioning_dataset.json`: articles of the New York Times, each with captioned pictures.

    {"<article id>": {"headline": {"main": "..", ..}, "abstract": "..", "article": "..", "article_url": "..",
                      "images": {"0": "<caption>", "1": ..}}, ...}
    img_urls.json      {"<article id>": {"0": "<URL>", "1": ..}, ...}

One document a picture: headline, abstract (its lead), that picture's caption, and the article. The picture's file is
`<article id>_<key>.jpg`, and so is the document's id. An article of several pictures gives documents that share three
of their texts. With the file of URLs, a picture is fetched from its own instead, where it has one there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from pipelines.sources.candidate import CandidateDocument
from pipelines.sources.fields import FieldError, checked, clean
from pipelines.sources.json_streams import is_text, read_mapping, read_members
from pipelines.sources.news_articles import NewsArticle, article_to_draft, text_of
from pipelines.sources.openings import BrokenInputError, Place
from schemas.documents import Role
from schemas.failures import Failure, Reason, Stage

SOURCE = "goodnews"
LANGUAGE = "en"


def read_goodnews(place: Place, *, urls: Place = "") -> Iterator[CandidateDocument | Failure]:
    """Yield a document for each picture, in file order, and a failure for each record or text that cannot be used.

    An article without pictures is a failure of its own (TOO_FEW_IMAGES). The URLs of all pictures are in memory
    (about 200 bytes each: 100 MB for all 466,000).

    Raises:
        BuildError: the file of URLs is no JSON object of objects.
        FileNotFoundError: there is no such file.
    """
    addresses = _addresses(urls) if urls else {}
    try:
        for name, record in read_members(place):
            try:
                articles = _articles(clean(name), checked(record, dict, "an article"), addresses)
            except FieldError as problem:
                yield problem.failure(clean(name))
                continue
            for article in articles:
                yield from article_to_draft(article) if isinstance(article, NewsArticle) else (article,)
    except BrokenInputError as problem:
        yield problem.failure()


def _articles(article_id: str, record: Mapping[str, Any], addresses: Mapping[str, str]) -> list[NewsArticle | Failure]:
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
        image = addresses.get(name, f"{name}.jpg")
        made.append(NewsArticle(name, with_caption, image, SOURCE, LANGUAGE, url))
    return made


def _addresses(urls: Place) -> dict[str, str]:
    """Return the URL of each picture by its name, `<article id>_<key>`."""
    by_article = read_mapping(urls, _is_object, expected="an object of URLs")
    return {
        f"{clean(article)}_{clean(key)}": url
        for article, pictures in by_article.items()
        for key, url in pictures.items()
        if is_text(url)
    }


def _is_object(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict)


def _headline(record: Mapping[str, Any]) -> str | None:
    """Return the main headline; one that is empty is an empty list in the Times' own interface."""
    headline = record.get("headline") or {}
    return text_of(checked(headline, dict, "headline"), "main") if not isinstance(headline, str) else clean(headline)
