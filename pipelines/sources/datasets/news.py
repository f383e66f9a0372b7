"""What newsrooms have: picture archives, and articles.

A picture archive: pictures with their descriptions, and no articles; what `multilink index` makes searchable.

    archive.jsonl   {"id": "p-1", "image": "pictures/1.jpg", "licence": "CC-BY-4.0", "title": "..", "caption": "..",
                     "credit": "..", "rights": "..", "date": "2019-05-01", "place": "..", "keywords": [".."]}
    pictures        a folder, a tar or a zip without such a file: every picture in it, its path being its id

A document is one picture and no sentence: there is nothing to train on. `id` and `image` (a path relative to the file's
folder or `source.images`, or a URL) must be there; the other fields are metadata (`schemas.metadata`) and go, together
with what the picture's own file says, into the images table. Where both say something, the record counts.

News articles: the project's own JSON Lines, GoodNews and VisualNews, and published splits.

    JSON Lines    {"id": "n-1", "language": "de", "headline": "..", "lead": "..", "caption": "..", "body": "..",
                   "image": "pictures/1.jpg", "entities": [..], "date": "2019-05-01", "split": "train",
                   "licence": "CC-BY-4.0", "picture": {"title": "..", "credit": "..", "keywords": [..]}}
    GoodNews      captioning_dataset.json
                      {"<article id>": {"headline": {"main": "..", ..}, "abstract": "..", "article": "..",
                                        "article_url": "..", "images": {"0": "<caption>", "1": ..}}, ...}
                  img_urls.json      {"<article id>": {"0": "<URL>", "1": ..}, ...}
                  img_splits.json    {"<article id>_<key>": "train", ...}
    VisualNews    data.json
                      [{"id": 5, "caption": "..", "topic": "law_crime", "source": "bbc",
                        "image_path": "./bbc/images/0000/005.jpg", "article_path": "./bbc/articles/0000/005.txt"}, ...]

A document is up to four texts by role and one picture. The links are known, and every text goes with the picture: N
ranks pictures for each of the four roles alone and for all together. The picture stands beside its caption; without one
it is not known where. A body stays one text, as N encodes it. Files are streamed; GoodNews' URLs (100 MB for all
466,000) and splits are in memory.

- JSON Lines: `id` and `image` (a path under the images' folder, or a URL) must be there, any of the texts may be absent
  or null, and so may `split`, `licence` (of text and image) and `picture`: what the archive says of the picture
  (`schemas.metadata`), which is no text of the article. Other fields are passed over.
- GoodNews: a document for each picture: headline, abstract (its lead), that picture's caption, and the article. The
  picture's file is `<article id>_<key>.jpg`, and so is the document's id. With the file of URLs, a picture is fetched
  from its own instead, where it has one there.
- VisualNews: paths start from the file's own folder, which may be one in a zip: `visualnews.zip!/origin/data.json`.
  Where the file of an article's text is not there, or is no text, the document is kept without a body. There are no
  headlines and no leads; the topic is no part of a document.
"""

import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePosixPath
from typing import Any, Literal

import msgspec

from pipelines.embedded import on_web
from pipelines.files import INSIDE, file_names, input_file
from pipelines.named_files import is_picture, read_named
from pipelines.recipe import EVERY_DOCUMENT, BuildConfig, as_published, without_limits
from pipelines.settings import FeaturesConfig, SplitsConfig
from pipelines.sources.fields import Object, described, identifier, misspelt, split_named, text_or_none, typed
from pipelines.sources.records import (
    CandidateDocument,
    CandidateImage,
    FieldError,
    file_name,
    json_lines,
    outcomes_of,
    rejected,
    sentence,
    stated_address,
    utf8,
)
from pipelines.sources.rows import read_items, read_mapping, read_members
from pipelines.sources.source import IMAGES, Input, Language, Outcomes, Source, input_path
from schemas.documents import UNDETERMINED, Link, Provenance, Role, Split
from schemas.errors import BuildError
from schemas.failures import Failure, Reason, Rejection
from schemas.metadata import Metadata
from schemas.tables import clean

ARCHIVE = "archive"
DATASET = "news"
ROLES = (Role.HEADLINE, Role.LEAD, Role.CAPTION, Role.BODY)  # their order in a document
MAX_ARTICLE_BYTES = 16 * 2**20
_PUBLISHED = {"jsonl": "*.jsonl", "goodnews": "captioning_dataset.json", "visualnews": "data.json"}
Texts = Mapping[Role, str | None]


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
        for name in sorted(file_names(self.images)):
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
    thresholds = replace(EVERY_DOCUMENT, min_sentences=0)
    config = without_limits("archive", ArchiveSource(), thresholds)
    return replace(config, features=FeaturesConfig(sentences=()), splits=SplitsConfig(val=0.0, test=0.0))


class _Article(msgspec.Struct):
    image: str
    headline: str | None = None
    lead: str | None = None
    caption: str | None = None
    body: str | None = None
    language: str = ""
    licence: str | None = None
    split: str | None = None
    picture: Any = None


class _GoodNews(msgspec.Struct):
    headline: Any = None
    abstract: str | None = None
    article: str | None = None
    article_url: str | None = None


class _VisualNews(msgspec.Struct):
    image_path: str
    caption: str | None = None
    source: str = ""
    article_path: str | None = None
    split: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewsSource(Source):
    """News articles with up to four texts and one picture (SPEC 2, `news`; N section 3).

    Attributes:
        format: of the file.
        articles: path of the file: JSON Lines (plain or compressed); GoodNews' `captioning_dataset.json`; or
            VisualNews' `data.json`, whose articles are beside it.
        splits: path of a JSON object from ids of documents to splits (GoodNews' `img_splits.json`); other documents are
            left out. Empty: splits of the records, if any.
        urls: path of GoodNews' `img_urls.json`, to fetch pictures from their URLs.
        images: path of the folder or tar that image addresses are relative to, or the URL of a folder.
        language: of records that do not say theirs; GoodNews and VisualNews are English.
    """

    format: Literal["jsonl", "goodnews", "visualnews"] = "jsonl"
    articles: str = input_path("")
    splits: str = input_path("")
    urls: str = input_path("")
    images: str = input_path("")
    language: Language = UNDETERMINED

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Return the settings that name what is read."""
        articles = Input("articles", published=(_PUBLISHED[self.format],), is_needed=True)
        return articles, *(Input(name, published=(f"img_{name}.json",)) for name in ("splits", "urls")), IMAGES

    def read(self) -> Outcomes:
        """Yield the articles of a file in order, and a failure for each record or text that cannot be used.

        A failure is filed under the article's id, or where it is in the file if it has none. An article of GoodNews
        without pictures is one (TOO_FEW_IMAGES), and so is an article that the published splits do not name
        (NOT_FOUND).

        Raises:
            BuildError: the splits are no JSON object from ids to splits, or the URLs no object of objects.
            ConfigError: the file is in an archive whose articles cannot be read by name.
            NotFoundError: there is no such file.
        """
        readers = {"jsonl": self._json_lines, "goodnews": self._goodnews, "visualnews": self._visualnews}
        splits = _published_splits(self.splits) if self.splits else None
        for outcome in readers[self.format]():
            if splits is None or isinstance(outcome, Failure):
                yield outcome
            elif outcome.id in splits:
                yield replace(outcome, split=splits[outcome.id])
            else:
                message = f"expected the split of this article in {input_file(self.splits).name}, found none"
                yield rejected(outcome.id, Reason.NOT_FOUND, message)

    def _json_lines(self) -> Iterator[CandidateDocument | Failure]:
        def outcomes(record: Mapping[str, Any], record_id: str) -> Iterator[CandidateDocument | Failure]:
            row = typed(record, _Article)
            about, failures = described(row.picture, record_id, "$.picture")
            yield from _article(
                record_id,
                {role: getattr(row, role) for role in ROLES},
                CandidateImage(stated_address(row.image, "$.image"), None, row.licence, about),
                source=DATASET,
                language=row.language.strip() or self.language,
                split=split_named(row.split),
            )
            yield from failures
            yield from misspelt(record, _Article, record_id=record_id)
            yield from misspelt(row.picture, Metadata, record_id=record_id, where="$.picture")

        return outcomes_of(json_lines(self.articles), outcomes, identifier)

    def _goodnews(self) -> Iterator[CandidateDocument | Failure]:
        urls = read_mapping(self.urls, dict) if self.urls else {}
        members = ((clean(name), record) for name, record in read_members(self.articles))
        return outcomes_of(members, partial(_goodnews_outcomes, urls=urls))

    def _visualnews(self) -> Iterator[CandidateDocument | Failure]:
        file = input_file(self.articles)
        folder = str(PurePosixPath(file.member or file.uri).parent)
        root = f"{file.uri}{INSIDE}{folder}" if file.member else folder
        return outcomes_of(read_items(self.articles), partial(_visualnews_outcomes, root=root), identifier)


def _article(
    record_id: str,
    published: Texts,
    image: CandidateImage,
    *,
    source: str,
    language: str = "en",
    url: str | None = None,
    split: Split | None = None,
) -> Iterator[CandidateDocument | Failure]:
    """Yield an article's document, then EMPTY_SENTENCE for each text that is there and blank.

    HTML's entities become characters, once (`&amp;lt;` is the text `&lt;`). Without any text there is a failure
    instead of the document.

    Args:
        record_id: its id.
        published: its texts by role; None: the source has none.
        image: its picture; its licence is that of the texts, too.
        source: name of the data set it came from.
        language: of its texts.
        url: address a person can open.
        split: where the source itself says.
    """
    texts = {role: sentence(html.unescape(text), role) for role in ROLES if (text := published.get(role)) is not None}
    sentences = tuple(text for text in texts.values() if text.text)
    if sentences:
        caption = next((index for index, text in enumerate(sentences) if text.role is Role.CAPTION), None)
        yield CandidateDocument(
            id=record_id,
            dataset=DATASET,
            sentences=sentences,
            images=(replace(image, after=caption),),
            links=tuple(Link(index, 0) for index in range(len(sentences))),
            provenance=Provenance(source, record_id, url, image.licence),
            language=language,
            split=split,
        )
    else:
        yield rejected(record_id, Reason.EMPTY_DOCUMENT, f"expected one of {', '.join(ROLES)}, found none")
    for role, blank in texts.items():
        if not blank.text:
            yield rejected(record_id, Reason.EMPTY_SENTENCE, f"the {role} is blank")


def _goodnews_outcomes(
    item: Object, article_id: str, urls: Mapping[str, Mapping[str, object]]
) -> Iterator[CandidateDocument | Failure]:
    """Yield an article once for each of its pictures."""
    row = typed(item, _GoodNews)
    headline = row.headline or {}  # an empty one is an empty list in the Times' own interface
    main = headline if isinstance(headline, str) else text_or_none(typed(headline, Object, "$.headline"), "main")
    texts = {Role.HEADLINE: main, Role.LEAD: row.abstract, Role.BODY: row.article}
    captions = item.get("images") or {}  # an empty one is spelt [], too; a caption may be null
    typed(captions, Object, "$.images")
    if not captions:
        raise FieldError(Reason.TOO_FEW_IMAGES, "expected a picture at least, found none")
    for key in captions:
        name = f"{article_id}_{clean(key)}"
        address = urls.get(article_id, {}).get(key)
        try:
            has_address = isinstance(address, str) and on_web(address)
            image = CandidateImage(clean(str(address)) if has_address else file_name(f"{name}.jpg", "a picture"))
            caption = text_or_none(captions, key)
        except FieldError as problem:
            yield problem.failure(name)
            continue
        yield from _article(name, {**texts, Role.CAPTION: caption}, image, source="goodnews", url=row.article_url)


def _visualnews_outcomes(item: object, record_id: str, root: str) -> Iterator[CandidateDocument | Failure]:
    """Yield a record's document, then the failures of its parts."""
    row = typed(item, _VisualNews)
    image = CandidateImage(file_name(row.image_path, "$.image_path").removeprefix("./"))
    problem = None
    try:
        body = _body(row.article_path, root)
    except Rejection as found:
        body, problem = None, found
    yield from _article(
        record_id,
        {Role.CAPTION: row.caption, Role.BODY: body},
        image,
        source=f"visualnews/{row.source}" if row.source else "visualnews",
        split=split_named(row.split),
    )
    if problem is not None:
        yield problem.failure(record_id)


def _body(path: str | None, root: str) -> str:
    """Return the text of an article's file; raise a `Rejection` where there is none."""
    if not path:
        raise FieldError(Reason.NOT_FOUND, "expected the field 'article_path', found none")
    return utf8(read_named(root, path.strip(), max_bytes=MAX_ARTICLE_BYTES, extensions=()))


def _published_splits(address: str) -> dict[str, Split | None]:
    try:
        return {name: split_named(value, name) for name, value in read_mapping(address, str).items()}
    except FieldError as problem:
        raise BuildError(f"{address}: {problem}") from problem


def news() -> BuildConfig:
    """News articles: up to four texts by their roles, one image."""
    return as_published("news", NewsSource())


RECIPES = {"news": news, "archive": archive}
