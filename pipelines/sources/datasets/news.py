"""What newsrooms have: picture archives, and articles.

A picture archive: pictures with their descriptions, and no articles; what `multilink index` makes searchable.

    archive.jsonl   {"id": "p-1", "image": "pictures/1.jpg", "licence": "CC-BY-4.0", "title": "..", "caption": "..",
                     "credit": "..", "rights": "..", "date": "2019-05-01", "place": "..", "keywords": [".."]}
    pictures        a folder, a tar or a zip without such a file: every picture in it, hidden ones apart, its path being
                    its id

A document is one picture and no sentence: there is nothing to train on. `id` and `image` (a path relative to the file's
folder or `source.images`, or a URL) must be there; the other fields are metadata (`schemas.metadata`) and go, together
with what the picture's own file says, into the images table. Where both say something, the record counts.

News articles: JSON Lines, which `examples/convert_news.py` makes of GoodNews and VisualNews.

    articles.jsonl  {"id": "n-1", "language": "de", "headline": "..", "lead": "..", "caption": "..", "body": "..",
                     "image": "pictures/1.jpg", "url": "..", "entities": [..], "date": "2019-05-01", "split": "train",
                     "licence": "CC-BY-4.0", "picture": {"title": "..", "credit": "..", "keywords": [..]}}

A document is up to four texts by role and one picture. The links are known, and every text goes with the picture: N
ranks pictures for each of the four roles alone and for all together. The picture stands beside its caption; without one
it is not known where. A body stays one text, as N encodes it.

`id` and `image` (a path under the images' folder, or a URL) must be there. Any of the texts may be absent or null, and
so may `url` (of the article), `split`, `licence` (of text and image) and `picture`: what the archive says of the
picture (`schemas.metadata`), which is no text of the article. Other fields are passed over.
"""

import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import msgspec

from pipelines.named_files import is_picture
from pipelines.recipe import EVERY_DOCUMENT, BuildConfig, as_published, without_limits
from pipelines.settings import FeaturesConfig, SplitsConfig
from pipelines.sources.fields import described, identifier, misspelt, split_named, typed
from pipelines.sources.own_files import OwnFiles
from pipelines.sources.records import (
    CandidateDocument,
    CandidateImage,
    json_lines,
    outcomes_of,
    rejected,
    sentence,
    stated_address,
)
from pipelines.sources.source import IMAGES, Input, Language, Outcomes, Source, input_path
from schemas.documents import UNDETERMINED, Link, Provenance, Role
from schemas.failures import Failure, Reason
from schemas.metadata import Metadata

ARCHIVE = "archive"
DATASET = "news"
ROLES = (Role.HEADLINE, Role.LEAD, Role.CAPTION, Role.BODY)  # their order in a document


class _ArchiveRecord(msgspec.Struct):
    image: str
    licence: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSource(Source):
    """A picture archive.

    Attributes:
        archive: path of the JSON Lines file; empty: none, and every picture of `images` is taken.
        images: folder, tar or zip with the pictures, or the URL of a folder; empty: the folder or archive of the file
            itself.
    """

    archive: str = input_path("")
    images: str = input_path("")

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Return the settings that name what is read."""
        return Input("archive", published=("archive.jsonl", "*.jsonl"), is_needed=not self.images), IMAGES

    def read(self) -> Outcomes:
        """Yield a document a picture, in order, and a failure for each record that cannot be used.

        Raises:
            NotFoundError: there is no such file.
        """
        if self.archive:
            yield from outcomes_of(json_lines(self.archive), _archive_outcomes, identifier)
            return
        for name in OwnFiles(self.images).names:
            if is_picture(name):
                yield _archive_document(name, CandidateImage(name))


def _archive_outcomes(record: Mapping[str, Any], record_id: str) -> Iterator[CandidateDocument | Failure]:
    row = typed(record, _ArchiveRecord)
    description, failures = described(record, record_id)
    address = stated_address(row.image, "$.image")
    yield _archive_document(record_id, CandidateImage(address, None, row.licence, description))
    yield from failures
    yield from misspelt(record, _ArchiveRecord, Metadata, record_id=record_id)


def _archive_document(record_id: str, image: CandidateImage) -> CandidateDocument:
    return CandidateDocument(
        id=record_id,
        dataset=ARCHIVE,
        sentences=(),
        images=(image,),
        links=None,
        provenance=Provenance(ARCHIVE, record_id, licence=image.licence),
    )


def archive() -> BuildConfig:
    """A picture archive to be searched: one picture a document, no sentence, all in one split."""
    config = without_limits("archive", ArchiveSource(), replace(EVERY_DOCUMENT, min_sentences=0))
    return replace(config, features=FeaturesConfig(sentences=()), splits=SplitsConfig(val=0.0, test=0.0))


class _Article(msgspec.Struct):
    image: str
    headline: str | None = None
    lead: str | None = None
    caption: str | None = None
    body: str | None = None
    url: str | None = None
    language: str = ""
    licence: str | None = None
    split: str | None = None
    picture: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewsSource(Source):
    """News articles with up to four texts and one picture (SPEC 2, `news`; N section 3).

    Attributes:
        articles: path of the JSON Lines file, plain or compressed.
        images: path of the folder or tar that image addresses are relative to, or the URL of a folder.
        language: of records that do not say theirs.
    """

    inputs: ClassVar = (Input("articles", published=("*.jsonl",), is_needed=True), IMAGES)
    articles: str = input_path("")
    images: str = input_path("")
    language: Language = UNDETERMINED

    def read(self) -> Outcomes:
        """Yield the articles of a file in order, and a failure for each record or text that cannot be used.

        A failure is filed under the article's id, or where it is in the file if it has none.

        Raises:
            NotFoundError: there is no such file.
        """

        def outcomes(record: Mapping[str, Any], record_id: str) -> Iterator[CandidateDocument | Failure]:
            return _article_outcomes(record, record_id, language=self.language)

        return outcomes_of(json_lines(self.articles), outcomes, identifier)


def _article_outcomes(
    record: Mapping[str, Any], record_id: str, *, language: str
) -> Iterator[CandidateDocument | Failure]:
    """Yield an article's document, then the failures of its parts: a text that is there and blank is one.

    HTML's entities become characters, once (`&amp;lt;` is the text `&lt;`). Without any text there is a failure
    instead of the document.
    """
    row = typed(record, _Article)
    about, failures = described(row.picture, record_id, "$.picture")
    address, split = stated_address(row.image, "$.image"), split_named(row.split)
    texts = {role: sentence(html.unescape(text), role) for role in ROLES if (text := getattr(row, role)) is not None}
    sentences = tuple(text for text in texts.values() if text.text)
    if sentences:
        caption = next((index for index, text in enumerate(sentences) if text.role is Role.CAPTION), None)
        yield CandidateDocument(
            id=record_id,
            dataset=DATASET,
            sentences=sentences,
            images=(CandidateImage(address, None, row.licence, about, after=caption),),
            links=tuple(Link(index, 0) for index in range(len(sentences))),
            provenance=Provenance(DATASET, record_id, row.url, row.licence),
            language=row.language.strip() or language,
            split=split,
        )
    else:
        yield rejected(record_id, Reason.EMPTY_DOCUMENT, f"expected one of {', '.join(ROLES)}, found none")
    for role, blank in texts.items():
        if not blank.text:
            yield rejected(record_id, Reason.EMPTY_SENTENCE, f"the {role} is blank")
    yield from failures
    yield from misspelt(record, _Article, record_id=record_id)
    yield from misspelt(row.picture, Metadata, record_id=record_id, where="$.picture")


def news() -> BuildConfig:
    """News articles: up to four texts by their roles, one image."""
    return as_published("news", NewsSource())


RECIPES = {"news": news, "archive": archive}
