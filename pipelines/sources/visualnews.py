"""VisualNews' `data.json`: captioned pictures of four newspapers, each beside the text of its article.

    [{"id": 5, "caption": "..", "topic": "law_crime", "source": "bbc",
      "image_path": "./bbc/images/0000/005.jpg", "article_path": "./bbc/articles/0000/005.txt"}, ...]

Paths start from the file's own folder, which may be one in a zip: `visualnews.zip!/origin/data.json`. Records are
streamed, and the article's text is read as they come, one at a time; where its file is not there, the document is kept
without a body (NOT_FOUND). There are no headlines and no leads; the topic is no part of a document.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from pipelines.files import INSIDE, FileRejected, input_file, read_named
from pipelines.sources.candidate import CandidateDocument
from pipelines.sources.json_stream import read_items
from pipelines.sources.news_articles import NewsArticle
from pipelines.sources.records import checked, file_name, identifier, outcomes_of, split_named, text_or_none
from schemas.documents import Role
from schemas.failures import Failure, Reason, Stage

SOURCE = "visualnews"
LANGUAGE = "en"
MAX_ARTICLE_BYTES = 16 * 2**20


def read(articles: str) -> Iterator[CandidateDocument | Failure]:
    """Yield a document for each record, in file order, and a failure for each record or text that cannot be used.

    Raises:
        ConfigError: the file is in an archive whose articles cannot be read by name.
        NotFoundError: there is no such file.
    """
    file = input_file(articles)
    folder = str(PurePosixPath(file.member or file.uri).parent)
    root = f"{file.uri}{INSIDE}{folder}" if file.member else folder
    yield from outcomes_of(read_items(articles), partial(_outcomes, root=root), _id)


def _id(item: object) -> str:
    return identifier(checked(item, dict, "a record"))


def _outcomes(item: object, record_id: str, root: str) -> Iterator[CandidateDocument | Failure]:
    """Yield a record's document, then the failures of its parts."""
    record: dict[str, Any] = checked(item, dict, "a record")
    image = file_name(record.get("image_path"), "image_path")
    publisher = text_or_none(record, "source")
    body, problem = _body(text_or_none(record, "article_path"), root)
    article = NewsArticle(
        id=record_id,
        texts={Role.CAPTION: text_or_none(record, "caption"), Role.BODY: body},
        image=image.removeprefix("./"),
        source=f"{SOURCE}/{publisher}" if publisher else SOURCE,
        language=LANGUAGE,
        split=split_named(record.get("split"), "split"),
    )
    yield from article.outcomes()
    if problem:
        yield Failure(Stage.SOURCES, f"{record_id}#body", Reason.NOT_FOUND, problem)


def _body(path: str | None, root: str) -> tuple[str | None, str]:
    """Return the text of an article's file, bytes that are not UTF-8 as U+FFFD; or why there is none."""
    if not path:
        return None, "expected the field 'article_path', found none"
    try:
        content = read_named(root, path.strip(), max_bytes=MAX_ARTICLE_BYTES, extensions=())
    except FileRejected as problem:
        return None, problem.message
    return content.decode("utf-8-sig", errors="replace"), ""
