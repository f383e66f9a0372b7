"""VisualNews' `data.json`: captioned pictures of four newspapers, each beside the text of its article.

    [{"id": 5, "caption": "..", "topic": "law_crime", "source": "bbc",
      "image_path": "./bbc/images/0000/005.jpg", "article_path": "./bbc/articles/0000/005.txt"}, ...]

Paths start from the file's own folder. The article's text is read as the records come, one at a time; where its file
is not there, the document is kept without a body (NOT_FOUND). There are no headlines and no leads; the topic has no
place in a document. The folder may be a zip, too: `visualnews.zip!/origin/data.json`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

from pipelines.sources.candidate import CandidateDocument
from pipelines.sources.fields import FieldError, checked, identifier, required, split_named
from pipelines.sources.json_streams import read_items
from pipelines.sources.news_articles import NewsArticle, article_to_draft, text_of
from pipelines.sources.openings import BrokenInputError, InputFile, Place, input_file
from schemas.documents import Role
from schemas.errors import ConfigError
from schemas.failures import Failure, Reason, Stage

SOURCE = "visualnews"
LANGUAGE = "en"
MAX_ARTICLE_BYTES = 16 * 2**20


def read_visualnews(place: Place) -> Iterator[CandidateDocument | Failure]:
    """Yield a document for each record, in file order, and a failure for each record or text that cannot be used.

    Raises:
        ConfigError: the file is in an archive whose articles cannot be looked up by name.
        FileNotFoundError: there is no such file.
    """
    file = input_file(place)
    position = 0
    try:
        with _articles_beside(file) as articles:
            for position, item in enumerate(read_items(file), start=1):
                yield from _read(item, f"{file.name}:{position}", articles)
    except BrokenInputError as problem:
        yield replace(problem.failure(), record_id=f"{file.name}:{position + 1}")


def _read(item: object, place: str, articles: _Articles) -> Iterator[CandidateDocument | Failure]:
    """Yield what a record gives: the draft first, then the failures of its parts; or one failure."""
    record_id = place
    try:
        record = checked(item, dict, "a record")
        record_id = identifier(record)
        image = _inside(required(record, "image_path", str))
        body = _Body(text_of(record, "article_path"), articles)
        publisher = text_of(record, "source")
        article = NewsArticle(
            id=record_id,
            texts={Role.CAPTION: text_of(record, "caption"), Role.BODY: body.text()},
            image=image,
            source=f"{SOURCE}/{publisher}" if publisher else SOURCE,
            language=LANGUAGE,
            split=split_named(record.get("split"), "split"),
        )
    except FieldError as problem:
        yield problem.failure(record_id)
        return
    yield from article_to_draft(article)
    if body.problem:
        yield Failure(Stage.SOURCES, f"{record_id}#body", Reason.NOT_FOUND, body.problem)


@contextlib.contextmanager
def _articles_beside(file: InputFile) -> Iterator[_Articles]:
    """Open what holds the articles of a file of records: its folder, or the zip it is in."""
    if not file.member:
        yield _Articles(Path(file.uri).parent)
        return
    if not file.uri.lower().endswith(".zip"):
        raise ConfigError(
            f"source.articles = {str(file)!r}: articles are looked up by name: unpack it, or make it a zip"
        )
    with ZipFile(file.uri) as archive:
        yield _Articles(PurePosixPath(file.member).parent, archive)


@dataclass(frozen=True, slots=True)
class _Articles:
    """Files below a folder, which may be one of an open zip."""

    folder: Path | PurePosixPath
    archive: ZipFile | None = None

    def read(self, path: str) -> bytes | None:
        """Return the first `MAX_ARTICLE_BYTES` of a file; None where there is none."""
        place = self.folder / path
        try:
            with self.archive.open(str(place)) if self.archive else Path(place).open("rb") as stream:
                return stream.read(MAX_ARTICLE_BYTES)
        except (KeyError, FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None


class _Body:
    """The text of an article's file, or why there is none."""

    def __init__(self, path: str | None, articles: _Articles) -> None:
        self._path = path
        self._articles = articles
        self.problem = "" if path else "expected the field 'article_path', found none"

    def text(self) -> str | None:
        """Return what the file holds, bytes that are not UTF-8 as U+FFFD; None where there is no file.

        Raises:
            FieldError: the path leads out of the data set's folder.
        """
        if not self._path:
            return None
        path = _inside(self._path)
        content = self._articles.read(path)
        if content is None:
            self.problem = f"expected the article {path} beside the records, found none"
            return None
        return content.decode("utf-8-sig", errors="replace")


def _inside(path: str) -> str:
    """Return a path relative to the data set's folder, without a leading `./`.

    Raises:
        FieldError: it is empty (MISSING_FIELD) or leads out of the folder (BROKEN_RECORD).
    """
    relative = PurePosixPath(path.strip().replace("\\", "/"))
    if relative.is_absolute() or ".." in relative.parts or "\0" in path:
        raise FieldError(Reason.BROKEN_RECORD, f"expected a path inside the folder, found {path!r}")
    if not relative.parts:
        raise FieldError(Reason.MISSING_FIELD, "expected a path, found it empty")
    return str(relative)
