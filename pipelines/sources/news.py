"""News articles: the project's own JSON Lines, the choice of a reader for the other formats, and published splits.

    {"id": "n-1", "language": "de", "headline": "..", "lead": "..", "caption": "..", "body": "..",
     "image": "pictures/1.jpg", "entities": [..], "date": "2019-05-01", "split": "train", "licence": "CC-BY-4.0"}

One article a line, streamed; `id` and `image` (a path under the images' folder, or a URL) must be there, any of the
texts may be absent or null, and so may `split` and `licence` (of text and image). `entities` and `date` are no part of
a document and are passed over.

A published split is a JSON object from the id of an article's picture to `train`, `val` or `test`: GoodNews'
`img_splits.json`, which is in memory. Where there is one, what it does not name is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from pipelines.files import input_file
from pipelines.sources import goodnews, visualnews
from pipelines.sources.candidate import CandidateDocument
from pipelines.sources.inputs import IMAGES, Input, needed, require_language
from pipelines.sources.json_stream import read_mapping
from pipelines.sources.news_articles import DATASET, ROLES, NewsArticle
from pipelines.sources.records import (
    WEB,
    FieldError,
    file_name,
    identifier,
    json_lines,
    outcomes_of,
    required,
    split_named,
    text_or_none,
)
from schemas.documents import UNDETERMINED, Split
from schemas.errors import BuildError
from schemas.failures import Failure, Reason, Stage


class NewsFormat(StrEnum):
    JSONL = "jsonl"
    GOODNEWS = "goodnews"
    VISUALNEWS = "visualnews"


_PUBLISHED = {
    NewsFormat.JSONL: "*.jsonl",
    NewsFormat.GOODNEWS: "captioning_dataset.json",
    NewsFormat.VISUALNEWS: "data.json",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewsSource:
    """News articles with up to four texts and one picture (SPEC 2, `news`; N section 3).

    Attributes:
        format: of the file.
        articles: path of the file: JSON Lines (plain or compressed); GoodNews' `captioning_dataset.json`; or
            VisualNews' `data.json`, whose articles are beside it.
        splits: path of a JSON object from the ids of documents to their splits (GoodNews' `img_splits.json`); empty:
            the records say, or nobody does.
        urls: path of GoodNews' `img_urls.json`, where pictures are to be fetched from their own URLs.
        images: path of the folder or tar that image addresses are relative to, or the URL of a folder.
        language: of records that do not say theirs; GoodNews and VisualNews are English.
    """

    format: NewsFormat = NewsFormat.JSONL
    articles: str = ""
    splits: str = ""
    urls: str = ""
    images: str = ""
    language: str = UNDETERMINED

    def __post_init__(self) -> None:
        require_language(self.language)

    def inputs(self) -> tuple[Input, ...]:
        """Return the settings that name what is read."""
        splits, urls = (Input(name, published=(f"img_{name}.json",)) for name in ("splits", "urls"))
        return needed("articles", _PUBLISHED[self.format]), splits, urls, IMAGES


def read(source: NewsSource) -> Iterator[CandidateDocument | Failure]:
    """Yield the articles of a file in order, and a failure for each record or text that cannot be used.

    A failure is filed under the article's id, or where it is in the file if it has none. Where splits are published
    apart, an article that has none is a failure (NOT_FOUND).

    Raises:
        BuildError: the splits are no JSON object from ids to splits.
        NotFoundError: there is no such file.
    """
    splits = _published_splits(source.splits) if source.splits else None
    for outcome in _outcomes(source):
        if splits is None or isinstance(outcome, Failure):
            yield outcome
        elif outcome.id in splits:
            yield replace(outcome, split=splits[outcome.id])
        else:
            yield Failure(
                Stage.SOURCES,
                outcome.id,
                Reason.NOT_FOUND,
                f"expected the split of this article in {input_file(source.splits).name}, found none",
            )


def _outcomes(source: NewsSource) -> Iterator[CandidateDocument | Failure]:
    if source.format is NewsFormat.GOODNEWS:
        return goodnews.read(source.articles, urls=source.urls)
    if source.format is NewsFormat.VISUALNEWS:
        return visualnews.read(source.articles)

    def outcomes(record: Mapping[str, Any], record_id: str) -> Iterator[CandidateDocument | Failure]:
        image = required(record, "image", str).strip()
        article = NewsArticle(
            id=record_id,
            texts={role: text_or_none(record, role) for role in ROLES},
            image=image if image.startswith(WEB) else file_name(image, "image"),
            source=DATASET,
            language=(text_or_none(record, "language") or "").strip() or source.language,
            licence=text_or_none(record, "licence"),
            split=split_named(record.get("split"), "split"),
        )
        return article.outcomes()

    return outcomes_of(json_lines(source.articles), outcomes, identifier)


def _published_splits(address: str) -> dict[str, Split | None]:
    named = read_mapping(address, str)
    try:
        return {name: split_named(value, "a split") for name, value in named.items()}
    except FieldError as problem:
        raise BuildError(f"{address}: {problem}") from problem
