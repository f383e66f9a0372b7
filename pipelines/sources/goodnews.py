"""GoodNews' `captioning_dataset.json`: articles of the New York Times, each with captioned pictures.

    {"<article id>": {"headline": {"main": "..", ..}, "abstract": "..", "article": "..", "article_url": "..",
                      "images": {"0": "<caption>", "1": ..}}, ...}
    img_urls.json      {"<article id>": {"0": "<URL>", "1": ..}, ...}

One document a picture: headline, abstract (its lead), that picture's caption, and the article. The picture's file is
`<article id>_<key>.jpg`, and so is the document's id. An article of several pictures gives documents that share three
of their texts. With the file of URLs, a picture is fetched from its own instead, where it has one there. Articles are
streamed; the URLs of all pictures are in memory (about 200 bytes each: 100 MB for all 466,000).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from pipelines.sources.candidate import CandidateDocument
from pipelines.sources.json_stream import read_mapping, read_members
from pipelines.sources.news_articles import NewsArticle
from pipelines.sources.records import WEB, FieldError, checked, clean, file_name, outcomes_of, text_or_none
from schemas.documents import Role
from schemas.failures import Failure, Reason

SOURCE = "goodnews"
LANGUAGE = "en"


def read(articles: str, *, urls: str = "") -> Iterator[CandidateDocument | Failure]:
    """Yield a document for each picture, in file order, and a failure for each record or text that cannot be used.

    An article without pictures is a failure of its own (TOO_FEW_IMAGES).

    Raises:
        BuildError: the file of URLs is no JSON object of objects.
        NotFoundError: there is no such file.
    """
    by_article = read_mapping(urls, dict) if urls else {}
    members = ((clean(name), record) for name, record in read_members(articles))
    yield from outcomes_of(members, partial(_outcomes, by_article=by_article))


def _outcomes(
    item: object, article_id: str, by_article: Mapping[str, Mapping[str, object]]
) -> Iterator[CandidateDocument | Failure]:
    """Yield an article once for each of its pictures."""
    record: dict[str, Any] = checked(item, dict, "an article")
    headline = record.get("headline") or {}  # an empty one is an empty list in the Times' own interface
    texts = {
        Role.HEADLINE: text_or_none(record, "headline")
        if isinstance(headline, str)
        else text_or_none(checked(headline, dict, "headline"), "main"),
        Role.LEAD: text_or_none(record, "abstract"),
        Role.BODY: text_or_none(record, "article"),
    }
    url = text_or_none(record, "article_url")
    captions: dict[str, Any] = checked(record.get("images") or {}, dict, "images")  # an empty one is spelt [], too
    if not captions:
        raise FieldError(Reason.TOO_FEW_IMAGES, "expected a picture at least, found none")
    for key in captions:
        name = f"{article_id}_{clean(key)}"
        address = by_article.get(article_id, {}).get(key)
        try:
            has_address = isinstance(address, str) and address.startswith(WEB)
            image = clean(str(address)) if has_address else file_name(f"{name}.jpg", "a picture")
            caption = text_or_none(captions, key)
        except FieldError as problem:
            yield problem.failure(name)
            continue
        yield from NewsArticle(name, {**texts, Role.CAPTION: caption}, image, SOURCE, LANGUAGE, url).outcomes()
