"""VisualNews' `data.json`: captioned pictures of four newspapers, each beside the text of its article.

    [{"id": 5, "caption": "..", "topic": "law_crime", "source": "bbc",
      "image_path": "./bbc/images/0000/005.jpg", "article_path": "./bbc/articles/0000/005.txt"}, ...]

Paths start from the file's own folder. The article's text is read as the records come, one at a time; where its file
is not there, the document is kept without a body (NOT_FOUND). There are no headlines and no leads; the topic has no
place in a document.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from pipelines.documents.draft import Draft
from pipelines.sources.fields import FieldError, checked, required
from pipelines.sources.json_streams import BrokenStreamError, read_items
from pipelines.sources.news_articles import NewsArticle, article_to_draft, record_id_of, text_of
from schemas.documents import Role
from schemas.failures import Failure, Reason, Stage

SOURCE = "visualnews"
LANGUAGE = "en"
MAX_ARTICLE_BYTES = 16 * 2**20


def read_visualnews(path: Path) -> Iterator[Draft | Failure]:
    """Yield a document for each record, in file order, and a failure for each record or text that cannot be used.

    Raises:
        FileNotFoundError: there is no such file.
    """
    position = 0
    try:
        for position, item in enumerate(read_items(path), start=1):
            yield from _read(item, f"{path.name}:{position}", path.parent)
    except BrokenStreamError as problem:
        cause = type(problem.__cause__ or problem).__name__
        place = f"{path.name}:{position + 1}"
        yield Failure(Stage.SOURCES, place, Reason.BROKEN_RECORD, str(problem), cause)


def _read(item: object, place: str, folder: Path) -> Iterator[Draft | Failure]:
    """Yield what a record gives: the draft first, then the failures of its parts; or one failure."""
    record_id = place
    try:
        record = checked(item, dict, "a record")
        record_id = record_id_of(record)
        image = _inside(required(record, "image_path", str))
        body = _Body(text_of(record, "article_path"), folder)
        publisher = text_of(record, "source")
        article = NewsArticle(
            id=record_id,
            texts={Role.CAPTION: text_of(record, "caption"), Role.BODY: body.text()},
            image=image,
            source=f"{SOURCE}/{publisher}" if publisher else SOURCE,
            language=LANGUAGE,
        )
    except FieldError as problem:
        yield problem.failure(record_id)
        return
    yield from article_to_draft(article)
    if body.problem:
        yield Failure(Stage.SOURCES, f"{record_id}#body", Reason.NOT_FOUND, body.problem)


class _Body:
    """The text of an article's file, or why there is none."""

    def __init__(self, path: str | None, folder: Path) -> None:
        self._path = path
        self._folder = folder
        self.problem = "" if path else "expected the field 'article_path', found none"

    def text(self) -> str | None:
        """Return what the file holds, bytes that are not UTF-8 as U+FFFD; None where there is no file.

        Raises:
            FieldError: the path leads out of the data set's folder.
        """
        if not self._path:
            return None
        path = _inside(self._path)
        try:
            with (self._folder / path).open("rb") as stream:
                return stream.read(MAX_ARTICLE_BYTES).decode("utf-8-sig", errors="replace")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            self.problem = f"expected the article {path} beside the records, found none"
            return None


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
